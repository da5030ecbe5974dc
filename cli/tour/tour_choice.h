/* tour_choice.h - the values that the user may choose for a tour, and the words and sizes of its prose. */
#ifndef CLI_TOUR_TOUR_CHOICE_H
#define CLI_TOUR_TOUR_CHOICE_H

#include "tour/tour.h"

/* Return the chosen value, or `usual`, the value of the walk-through. */
uint64_t tour_seed(const tour *t, uint64_t usual);
int64_t tour_width(const tour *t, int64_t usual);
int64_t tour_heads(const tour *t, int64_t usual);
/* Fails unless the width is a multiple of the number of heads. */
mha_status tour_check_heads(tour *t, int64_t width, int64_t heads);

/* The words of a text, separated by spaces. Equal words have one id; ids are in the order of first occurrence. */
typedef struct tour_words {
    const char *text;
    int64_t count, distinct;
    const char *const *word; /* [count] */
    int32_t *ids;            /* [count] */
} tour_words;
enum { TOUR_WORDS_MIN = 2, TOUR_WORDS_MAX = 64 };
/* Reads the chosen text, or `usual`. Fails unless the text has 2 to 64 words. */
mha_status tour_read_words(tour *t, const char *usual, tour_words *words);
/* Samples x [count, width]: the rows of the words in an embedding initialized as in nn.Embedding(distinct, width). */
mha_status tour_embed_words(tour *t, const tour_words *words, int64_t width, mha_rng *rng, float *x);

/* Reads the parameters of the current layer, or the tensors of `list`, from the chosen file; without one, does
 * nothing. */
mha_status tour_load_layer(tour *t);
mha_status tour_load_tensors(tour *t, const mha_named_tensor *list, int64_t count);

/* Returns zeroed memory that is freed with the tour. After a failure, returns NULL and sets ->error. */
void *tour_memory(tour *t, size_t bytes);
float *tour_floats(tour *t, int64_t count);

/* ---- prose; the strings are freed with the tour and are "" after a failure ---- */

const char *tour_format(tour *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns a shape, for example "[5, 4]". */
const char *tour_dims(tour *t, int rank, const int64_t *shape);
#define TOUR_DIMS(t, ...) tour_dims(t, TOUR_SHAPE(__VA_ARGS__))
/* Returns "two" for 2, and digits above twelve. */
const char *tour_count_word(tour *t, int64_t n);
/* Returns "one head" or "two heads". */
const char *tour_many(tour *t, int64_t n, const char *noun);
/* Returns "is bitwise identical to" if a and b are equal, otherwise "differs by at most 1e-07 from". */
const char *tour_compare(tour *t, const float *a, const float *b, int64_t count);
/* Returns the largest absolute difference; infinite if an element is not a number. */
double tour_difference(const float *a, const float *b, int64_t count);
/* Returns "column 0", "columns 0 and 1" or "columns 0 to 3". */
const char *tour_span(tour *t, const char *noun, int64_t first, int64_t count);

#endif

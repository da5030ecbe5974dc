/* tour.h - the walk-throughs of `mha tour` as data: the text and tensors of every step.
 *
 * A tour is a list of steps. tour_text.c, tour_json.c and tour_page.c write this list and do not depend on its
 * contents. The files tour_of_*.c create the steps; they use only the public headers of the library, print nothing, and
 * are the tutorial of the C API. Each tour names an equivalent program in examples/.
 *
 * A failed library call ends the tour; its message is in tour.error. */
#ifndef CLI_TOUR_TOUR_H
#define CLI_TOUR_TOUR_H

#include "mha/mha.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { TOUR_STEPS = 16, TOUR_TENSORS = 6, TOUR_COUNTS = 8 }; /* maximum counts */

/* How the page draws a tensor. */
typedef enum tour_look {
    TOUR_NUMBERS = 0, /* a map on a scale centered at zero */
    TOUR_WEIGHTS,     /* a map of values in [0, 1] */
    TOUR_HEADS,       /* cells with their values, colored by head */
    TOUR_CURVE,       /* [n, 2]: drawn as a line through the points (x, y) */
    TOUR_ROWS,        /* no image */
    TOUR_WHOLE        /* no image; integers, printed without a decimal point */
} tour_look;

typedef struct tour_tensor {
    const char *name; /* name, unique in the tour */
    tour_look look;
    int64_t head_step, heads; /* TOUR_HEADS: element n belongs to head n / head_step % heads */
    int rank;                 /* number of axes, 0..4; 0 = scalar */
    int64_t shape[4], count;
    float *values; /* [count] elements in row-major order */
    char **words;  /* [word_count] labels of the rows, and of the columns if there are as many; NULL = numbered */
    int64_t word_count;
} tour_tensor;

/* Parameters and flops of a layer. */
typedef struct tour_count {
    const char *name;
    int64_t parameters, flops; /* flops: multiplications and additions of one forward call's matrix products */
} tour_count;

typedef struct tour_step {
    const char *title;
    const char *call; /* the functions and fields that compute the step */
    char *text;       /* explanation of the step */
    tour_tensor tensors[TOUR_TENSORS];
    tour_count counts[TOUR_COUNTS]; /* counts are compared with the first count */
    int tensors_used, counts_used;
} tour_step;

/* What the user chooses in place of the values of the walk-through; a field that is 0 or NULL keeps them. */
typedef struct tour_choice {
    const char *text; /* words separated by spaces, or with `model_chosen` any text */
    int64_t width, heads;
    bool seeded; /* `seed` is chosen */
    uint64_t seed;
    const char *weights; /* safetensors file with the parameters of the layer */
    bool model_chosen;   /* the tour shows tour.model or, if it accepts TOUR_LAYER, a layer of this model */
    int64_t layer, head;
} tour_choice;

/* Memory of a tour, freed with it. */
typedef struct tour_block {
    struct tour_block *next;
    max_align_t data[];
} tour_block;

typedef struct tour {
    const char *name, *summary, *example;
    const char *model;      /* folder of the chosen or built-in model; NULL for a tour that reads none */
    const char *model_name; /* last component of `model` */
    tour_choice choice;
    tour_block *blocks;
    mha_ctx *ctx;
    mha_variant *layer; /* the current layer, set by tour_layer */
    mha_trace *trace;   /* trace of the last forward call */
    mha_error error;
    tour_tensor nowhere; /* returned by a failed tour_show */
    tour_step steps[TOUR_STEPS];
    int step_count;
} tour;

/* Options that a tour accepts (tour_choice). */
enum {
    TOUR_TEXT = 1 << 0,
    TOUR_SEED = 1 << 1,
    TOUR_WIDTH = 1 << 2,
    TOUR_CHOICE_HEADS = 1 << 3,
    TOUR_CHOICE_WEIGHTS = 1 << 4,
    TOUR_MODEL = 1 << 5, /* a model in place of the built-in model */
    TOUR_LAYER = 1 << 6, /* a layer of a model */
    TOUR_HEAD = 1 << 7   /* one head of this layer */
};

/* The table of tours, terminated by a NULL name. */
typedef struct tour_entry {
    const char *name, *example, *summary;
    void (*walk)(tour *t);
    unsigned accepts; /* options that may be chosen */
} tour_entry;
extern const tour_entry tour_entries[];

/* Runs a tour. Returns NULL if memory is exhausted. Any other failure sets ->error and ends the tour. */
tour *tour_make(mha_ctx *ctx, const tour_entry *entry, const char *model, const tour_choice *choice);
void tour_free(tour *t);

/* ---- functions for tours; after a failure they do nothing ---- */

/* Ends the tour if a library call failed. */
#define TOUR_TRY(call)                \
    do {                              \
        if ((call) != MHA_OK) return; \
    } while (0)

/* Sets ->error, unless it is set. */
void tour_fail(tour *t, mha_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Begins a step; `format` is a printf format, `call` must live as long as the tour. */
void tour_say(tour *t, const char *title, const char *call, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds a copy of a row-major tensor to the last step: tour_show(t, "q", q, TOUR_SHAPE(5, 4)). Returns the copy, so that
 * the caller can change its look; never NULL. */
#define TOUR_SHAPE(...)                                                    \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }
tour_tensor *tour_show(tour *t, const char *name, const float *values, int rank, const int64_t *shape);
tour_tensor *tour_show_weights(tour *t, const char *name, const float *values, int rank, const int64_t *shape);
/* Labels the last two axes with copies of `words`, which has as many elements as the last axis. */
void tour_name_words(tour *t, tour_tensor *tensor, const char *const *words);
/* Sets the look TOUR_HEADS with one color per head; the head changes every `head_step` elements. */
void tour_color_heads(tour_tensor *tensor, int64_t heads, int64_t head_step);
/* Adds a scalar to the last step. */
void tour_show_number(tour *t, const char *name, double value);
/* Adds the tensor of a step of the trace; attention weights have the look TOUR_WEIGHTS. */
tour_tensor *tour_show_trace(tour *t, const char *name, mha_step step);
/* Adds the queries, keys and values of the trace, split into heads. */
void tour_show_qkv(tour *t);
/* Adds a parameter of the layer. */
void tour_show_parameter(tour *t, const char *name);

/* Returns the address where a constructor stores the current layer; frees the previous layer. */
mha_variant **tour_layer(tour *t);
/* Returns the parameters of the layer and the flops of its last forward call. */
tour_count tour_counted(const tour *t, const char *name);
/* Adds a count to the last step: `count`, or the count of the layer. */
void tour_count_given(tour *t, tour_count count);
void tour_count_layer(tour *t, const char *name);

/* Computes y [rows, matrix->out] = x W^T + bias for x [rows, in]; x W + bias if the matrix is stored as [in, out]
 * (.transposed). */
mha_status tour_multiply(tour *t, const mha_matrix *matrix, int64_t in, const float *x, int64_t rows, float *y);

/* ---- functions for output ---- */

/* Prints the tensor as PyTorch does, in lines of about `columns`; omits inner elements if it has more than 200. */
void tour_tensor_print(FILE *out, const tour_tensor *tensor, int columns);

#endif

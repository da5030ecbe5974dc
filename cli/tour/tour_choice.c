/* tour_choice.c - the chosen values of a tour; strings and memory that live as long as the tour. */
#include "tour/tour_choice.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- sizes ---- */

uint64_t tour_seed(const tour *t, uint64_t usual)
{
    return t->choice.seeded ? t->choice.seed : usual;
}

int64_t tour_width(const tour *t, int64_t usual)
{
    return t->choice.width ? t->choice.width : usual;
}

int64_t tour_heads(const tour *t, int64_t usual)
{
    return t->choice.heads ? t->choice.heads : usual;
}

mha_status tour_check_heads(tour *t, int64_t width, int64_t heads)
{
    if (width % heads != 0)
        tour_fail(t, MHA_ERR_ARG, "the width must be a multiple of the number of heads (got width %lld, %s)",
                  (long long)width, tour_many(t, heads, "head"));
    return t->error.status;
}

/* ---- memory ---- */

void *tour_memory(tour *t, size_t bytes)
{
    if (t->error.status != MHA_OK) return NULL;
    tour_block *block = calloc(1, sizeof *block + bytes);
    if (!block) {
        tour_fail(t, MHA_ERR_MEMORY, "out of memory");
        return NULL;
    }
    block->next = t->blocks;
    t->blocks = block;
    return block->data;
}

float *tour_floats(tour *t, int64_t count)
{
    return tour_memory(t, (size_t)count * sizeof(float));
}

/* ---- words ---- */

static int64_t count_words(const char *text)
{
    int64_t count = 0;
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        at += strcspn(at, " ");
        count++;
    }
    return count;
}

/* Splits `text`, which is changed, and numbers its words. */
static void split_words(tour_words *w, char *text, const char **word)
{
    for (char *rest = NULL, *at = strtok_r(text, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) {
        int64_t same = 0;
        while (same < w->count && strcmp(word[same], at) != 0)
            same++;
        w->ids[w->count] = same < w->count ? w->ids[same] : (int32_t)w->distinct++;
        word[w->count++] = at;
    }
    w->word = word;
}

mha_status tour_read_words(tour *t, const char *usual, tour_words *words)
{
    const char *text = t->choice.text ? t->choice.text : usual;
    const int64_t count = count_words(text);
    if (count < TOUR_WORDS_MIN || count > TOUR_WORDS_MAX)
        tour_fail(t, MHA_ERR_ARG, "the text must have %d to %d words (got %lld)", TOUR_WORDS_MIN, TOUR_WORDS_MAX,
                  (long long)count);
    char *copy = tour_memory(t, strlen(text) + 1);
    const char **word = tour_memory(t, (size_t)count * sizeof *word);
    *words = (tour_words){.text = text, .ids = tour_memory(t, (size_t)count * sizeof *words->ids)};
    if (t->error.status == MHA_OK) split_words(words, strcpy(copy, text), word);
    return t->error.status;
}

mha_status tour_embed_words(tour *t, const tour_words *words, int64_t width, mha_rng *rng, float *x)
{
    float *table = tour_floats(t, words->distinct * width);
    if (!table) return t->error.status;
    const mha_status status = mha_rng_embedding(rng, words->distinct, width, -1, table, &t->error);
    if (status != MHA_OK) return status;
    return mha_embedding_forward("words", table, words->distinct, width, words->ids, words->count, 0, x, &t->error);
}

/* ---- weights ---- */

mha_status tour_load_tensors(tour *t, const mha_named_tensor *list, int64_t count)
{
    mha_file *file = NULL;
    if (!t->choice.weights) return MHA_OK;
    mha_status status = mha_file_open(t->ctx, t->choice.weights, NULL, &file, &t->error);
    if (status == MHA_OK) status = mha_tensors_read(file, list, count, &t->error);
    mha_file_free(file);
    return status;
}

mha_status tour_load_layer(tour *t)
{
    int64_t count = 0;
    const mha_named_tensor *list = mha_variant_parameters(t->layer, &count);
    const mha_status status = tour_load_tensors(t, list, count);
    return status == MHA_OK && t->choice.weights ? mha_variant_update(t->layer, &t->error) : status;
}

/* ---- prose ---- */

const char *tour_format(tour *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, args);
    char *text = tour_memory(t, (size_t)length + 1);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    return text ? text : "";
}

const char *tour_dims(tour *t, int rank, const int64_t *shape)
{
    const char *text = "";
    for (int axis = 0; axis < rank; axis++)
        text = tour_format(t, "%s%s%lld", text, axis ? ", " : "", (long long)shape[axis]);
    return tour_format(t, "[%s]", text);
}

const char *tour_count_word(tour *t, int64_t n)
{
    static const char *const names[] = {"no",    "one",   "two",  "three", "four",   "five",  "six",
                                        "seven", "eight", "nine", "ten",   "eleven", "twelve"};
    return n < (int64_t)(sizeof names / sizeof *names) ? names[n] : tour_format(t, "%lld", (long long)n);
}

const char *tour_many(tour *t, int64_t n, const char *noun)
{
    return tour_format(t, n == 1 ? "%s %s" : "%s %ss", tour_count_word(t, n), noun);
}

const char *tour_span(tour *t, const char *noun, int64_t first, int64_t count)
{
    if (count == 1) return tour_format(t, "%s %lld", noun, (long long)first);
    return tour_format(t, count == 2 ? "%ss %lld and %lld" : "%ss %lld to %lld", noun, (long long)first,
                       (long long)(first + count - 1));
}

double tour_difference(const float *a, const float *b, int64_t count)
{
    double max = 0;
    for (int64_t n = 0; n < count; n++) {
        const double apart = fabs((double)a[n] - (double)b[n]);
        max = isnan(apart) ? (double)INFINITY : fmax(max, apart);
    }
    return max;
}

const char *tour_compare(tour *t, const float *a, const float *b, int64_t count)
{
    const double max = tour_difference(a, b, count);
    if (max == 0) return "is bitwise identical to";
    const double unit = pow(10, floor(log10(max))); /* of the first digit, which is rounded up */
    return tour_format(t, "differs by at most %.1g from", isfinite(max) ? ceil(max / unit) * unit : max);
}

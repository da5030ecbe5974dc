/* token_times.c - aligns the tokens of a text with the audio of its source: the maps of some heads of the
 * cross-attention, normalized and smoothed, and the best path through them. */
#include "mha/token_times.h"

#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/model_struct.h"
#include <math.h>
#include <string.h>

static const double SECONDS_PER_POSITION = 0.02; /* two frames */

typedef struct alignment {
    const mha_model *model;
    mha_token_times_options o;
    int64_t count, sources; /* tokens of the text, and positions of the encoder */
    int64_t rows, columns;  /* tokens that are aligned, and positions with audio */
    mha_model_head *own;    /* default list of heads; NULL = the caller's */
    float *map;             /* [rows, columns] one map */
    double *sum;            /* [rows, columns] sum of the maps */
    float *sorted;          /* [median_width] */
    double *cost;           /* [2, columns + 1] the last two rows of costs of paths */
    uint8_t *step;          /* [rows, columns] last step of the best path to each cell */
} alignment;

/* ---- maps ---- */

/* Normalizes each column of the map over its tokens, as z-scores. A constant column becomes 0. */
static void normalize(const alignment *a)
{
    for (int64_t c = 0; c < a->columns; c++) {
        double mean = 0, square = 0;
        for (int64_t r = 0; r < a->rows; r++)
            mean += (double)a->map[r * a->columns + c] / (double)a->rows;
        for (int64_t r = 0; r < a->rows; r++)
            square += pow((double)a->map[r * a->columns + c] - mean, 2);
        const double deviation = sqrt(square / (double)a->rows);
        for (int64_t r = 0; r < a->rows; r++) {
            float *x = &a->map[r * a->columns + c];
            *x = deviation > 0 ? (float)(((double)*x - mean) / deviation) : 0;
        }
    }
}

/* Returns the column at a position that may be beyond an end, where the row is mirrored. */
static int64_t mirrored(int64_t at, int64_t columns)
{
    return at < 0 ? -at : at >= columns ? 2 * (columns - 1) - at : at;
}

/* Inserts a value into sorted values [count]. */
static void insert_sorted(float *sorted, int64_t count, float x)
{
    int64_t at = count;
    for (; at > 0 && sorted[at - 1] > x; at--)
        sorted[at] = sorted[at - 1];
    sorted[at] = x;
}

/* Replaces one of the sorted values [count]. */
static void replace_sorted(float *sorted, int64_t count, float old, float x)
{
    int64_t at = 0;
    while (at < count - 1 && sorted[at] != old)
        at++;
    memmove(sorted + at, sorted + at + 1, (size_t)(count - 1 - at) * sizeof *sorted);
    insert_sorted(sorted, count - 1, x);
}

/* Adds the medians of the values around each column of a row. The window stays sorted while it moves, so that a column
 * takes time proportional to the width. */
static void add_medians(const alignment *a, const float *row, double *sum)
{
    const int64_t width = a->o.median_width, half = width / 2, columns = a->columns;
    for (int64_t n = 0; n < width; n++)
        insert_sorted(a->sorted, n, row[mirrored(n - half, columns)]);
    for (int64_t c = 0; c < columns; c++) {
        sum[c] += (double)a->sorted[half];
        if (c + 1 < columns)
            replace_sorted(a->sorted, width, row[mirrored(c - half, columns)], row[mirrored(c + 1 + half, columns)]);
    }
}

/* Adds the smoothed map to the sum. Rows shorter than the filter are not smoothed, as in transformers. */
static void add_smoothed(const alignment *a)
{
    const bool smooth = a->columns > a->o.median_width / 2;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *row = a->map + r * a->columns;
        double *sum = a->sum + r * a->columns;
        if (smooth) add_medians(a, row, sum);
        for (int64_t c = 0; c < a->columns && !smooth; c++)
            sum[c] += (double)row[c];
    }
}

/* Receives the maps [heads, count, sources] of one layer. */
static int on_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    const alignment *a = user;
    (void)layer;
    for (int64_t h = 0; h < heads; h++) {
        for (int64_t r = 0; r < a->rows; r++)
            memcpy(a->map + r * a->columns, probs + ((h * a->count) + a->o.prompt + r) * a->sources,
                   (size_t)a->columns * sizeof *a->map);
        normalize(a);
        add_smoothed(a);
    }
    return 0;
}

/* ---- dynamic time warping ---- */

enum { BOTH, NEXT_TOKEN, NEXT_COLUMN };

/* Finds the last step of the path with the largest sum to every cell, from one of its three neighbors. */
static void find_steps(const alignment *a)
{
    const int64_t wide = a->columns + 1;
    double *before = a->cost, *now = a->cost + wide;
    for (int64_t c = 0; c < wide; c++)
        before[c] = c ? INFINITY : 0;
    for (int64_t r = 0; r < a->rows; r++) {
        now[0] = INFINITY;
        for (int64_t c = 0; c < a->columns; c++) {
            const double both = before[c], token = before[c + 1], column = now[c];
            const int step = both < token && both < column    ? BOTH
                             : token < both && token < column ? NEXT_TOKEN
                                                              : NEXT_COLUMN;
            a->step[r * a->columns + c] = (uint8_t)step;
            now[c + 1] = (step == BOTH         ? both
                          : step == NEXT_TOKEN ? token
                                               : column) -
                         a->sum[r * a->columns + c] / (double)a->o.head_count;
        }
        double *other = before;
        before = now;
        now = other;
    }
}

/* Follows the steps from the last cell back, and sets the time of each token to its first column. */
static void read_times(const alignment *a, double *seconds)
{
    int64_t r = a->rows - 1, c = a->columns - 1;
    while (r >= 0 && c >= 0) {
        const int step = a->step[r * a->columns + c];
        seconds[r] = (double)c * SECONDS_PER_POSITION;
        r -= step == BOTH || step == NEXT_TOKEN;
        c -= step == BOTH || step == NEXT_COLUMN;
    }
    for (; r >= 0; r--) /* tokens before the first column of the path */
        seconds[r] = 0;
}

/* ---- checks and memory ---- */

static mha_status check(alignment *a, const float *features, const int32_t *ids, const double *seconds, mha_error *err)
{
    const mha_model *e = a->model->encoder;
    if (!e || !e->config.mel_bins)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "mha_model_token_times: model must have an encoder that reads audio (got %s)",
                         a->model->info.family);
    if (!features || !ids || !seconds)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_token_times: features, ids and seconds must not be NULL");
    a->sources = e->config.max_positions;
    if (a->o.prompt < 0 || a->o.prompt >= a->count)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_token_times_options: prompt must be at least 0 and below count = %lld (got %lld)",
                         (long long)a->count, (long long)a->o.prompt);
    if (a->o.frames == 0) a->o.frames = 2 * a->sources;
    if (a->o.frames < 2 || a->o.frames > 2 * a->sources)
        return mha__fail(err, MHA_ERR_ARG, "mha_token_times_options: frames must be from 2 to %lld (got %lld)",
                         2 * (long long)a->sources, (long long)a->o.frames);
    if (a->o.median_width == 0) a->o.median_width = a->model->config.median_width;
    if (a->o.median_width < 1 || a->o.median_width > 1023 || a->o.median_width % 2 == 0)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_token_times_options: median_width must be odd and from 1 to 1023 (got %lld)",
                         (long long)a->o.median_width);
    if ((a->o.heads != NULL) != (a->o.head_count > 0))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_token_times_options: head_count must be the number of entries in heads (got %lld)",
                         (long long)a->o.head_count);
    a->rows = a->count - a->o.prompt;
    a->columns = a->o.frames / 2;
    return MHA_OK;
}

/* Lists the heads that the checkpoint names by their numbers in the unpruned model, without those that were removed. */
static void list_named(alignment *a)
{
    const mha__config *c = &a->model->config;
    for (int64_t n = 0; n < c->alignment_count; n++)
        for (int32_t l = c->alignment[n][0], h = 0; h < c->cross_heads[l]; h++)
            if (a->model->cross_numbers[l * c->heads + h] == c->alignment[n][1])
                a->own[a->o.head_count++] = (mha_model_head){l, h};
}

/* Lists the heads of the upper half of the layers. */
static void list_upper(alignment *a)
{
    const mha__config *c = &a->model->config;
    for (int32_t l = (int32_t)(c->layers / 2); l < c->layers; l++)
        for (int32_t h = 0; h < c->cross_heads[l]; h++)
            a->own[a->o.head_count++] = (mha_model_head){l, h};
}

/* Lists the heads of the checkpoint or, if it names none, those of the upper half of the layers. */
static mha_status list_heads(alignment *a, mha_error *err)
{
    const mha__config *c = &a->model->config;
    const size_t max = (size_t)mha__max64(c->layers * c->heads, c->alignment_count);
    if (a->o.heads) return MHA_OK;
    a->own = mha__calloc(a->model->ctx, max, sizeof *a->own);
    if (!a->own) return mha__no_memory(err, max * sizeof *a->own, "the heads that align a text");
    if (c->alignment_count)
        list_named(a);
    else
        list_upper(a);
    a->o.heads = a->own;
    if (a->o.head_count) return MHA_OK;
    mha__free(a->model->ctx, a->own);
    return mha__fail(err, MHA_ERR_ARG,
                     "mha_token_times_options: heads must not be NULL, since all alignment_heads of the model were "
                     "removed");
}

static void lay_out(mha__arena *arena, alignment *a)
{
    const size_t rows = (size_t)a->rows, columns = (size_t)a->columns;
    a->map = mha__take(arena, rows, columns * sizeof *a->map);
    a->sum = mha__take(arena, rows, columns * sizeof *a->sum);
    a->sorted = mha__take(arena, (size_t)a->o.median_width, sizeof *a->sorted);
    a->cost = mha__take(arena, 2 * (columns + 1), sizeof *a->cost);
    a->step = mha__take(arena, rows, columns);
}

static mha_status run(alignment *a, const float *features, const int32_t *ids, double *seconds, mha_error *err)
{
    const mha_model_input source = {.size = sizeof source, .batch = 1, .length = a->sources, .features = features};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = a->count, .ids = ids, .source = &source};
    const mha_model_output output = {.size = sizeof output,
                                     .on_cross_attention = on_maps,
                                     .cross_map_heads = a->o.heads,
                                     .cross_map_count = a->o.head_count,
                                     .user = a};
    memset(a->sum, 0, (size_t)(a->rows * a->columns) * sizeof *a->sum);
    MHA__TRY(mha_model_forward(a->model, &input, &output, err));
    find_steps(a);
    read_times(a, seconds);
    return MHA_OK;
}

mha_status mha_model_token_times(const mha_model *model, const float *features, const int32_t *ids, int64_t count,
                                 const mha_token_times_options *options, double *seconds, mha_error *err)
{
    alignment a = {.model = model, .count = count};
    mha__arena arena = {0};
    if (!model) return mha__fail(err, MHA_ERR_ARG, "mha_model_token_times: model must not be NULL");
    MHA__TRY(mha__options_read(&a.o, sizeof a.o, options, "mha_token_times_options", err));
    MHA__TRY(check(&a, features, ids, seconds, err));
    MHA__TRY(list_heads(&a, err));
    lay_out(&arena, &a);
    const size_t bytes = arena.overflow ? SIZE_MAX : arena.used;
    void *memory = arena.base = arena.overflow ? NULL : mha__alloc(model->ctx, bytes);
    arena.used = 0;
    if (memory) lay_out(&arena, &a);
    const mha_status status =
        memory ? run(&a, features, ids, seconds, err) : mha__no_memory(err, bytes, "the alignment of a text");
    mha__free(model->ctx, memory);
    mha__free(model->ctx, a.own);
    return status;
}

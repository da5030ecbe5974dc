/* taps_case.c - implements taps_case.h. */
#include "support/passes/taps_case.h"

#include "support/check.h"
#include "support/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = TAPS_B, L = TAPS_L, TOKENS = TAPS_TOKENS, LAYERS = TAPS_LAYERS, H = TAPS_H, TOP = TAPS_TOP, VOCAB = 600 };

const char *const taps_models[] = {"models/bert-tiny", "models/gpt2-tiny", "models/gemma2-tiny"};
const int64_t taps_starts[B + 1] = {0, 11, 12, 12 + L};
int32_t taps_ids[TOKENS];

int taps_setup(void **state)
{
    (void)state;
    rng r = rng_make(7, 1);
    for (int n = 0; n < TOKENS; n++)
        taps_ids[n] = (int32_t)rng_range(&r, 0, VOCAB - 1);
    return 0;
}

/* ---- inputs ---- */

static uint8_t mask[TOKENS];
static float gates[LAYERS * B * H];

mha_model_input taps_input(int kind)
{
    mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = taps_ids};
    const int64_t lengths[B] = {L, 9, 1};
    for (int64_t n = 0; n < TOKENS; n++) {
        const int64_t b = n / L, i = n % L;
        mask[n] = kind == TAPS_LEFT ? i >= L - lengths[b] : kind == TAPS_HOLES ? i % 7 != b : i < lengths[b];
    }
    for (int n = 0; n < LAYERS * B * H; n++)
        gates[n] = (float)(n % 5) / 4;
    if (kind == TAPS_PADDED || kind == TAPS_HOLES || kind == TAPS_LEFT) in.mask = mask;
    if (kind == TAPS_PACKED) in.starts = taps_starts;
    if (kind == TAPS_GATED) in.gates = gates;
    return in;
}

bool taps_is_real(const mha_model_input *in, int64_t b, int64_t i)
{
    if (in->starts) return i < in->starts[b + 1] - in->starts[b];
    return !in->mask || in->mask[b * in->length + i];
}

/* ---- a forward pass that copies all data passed to its callbacks ---- */

static void *copy(const void *from, int64_t count, size_t size)
{
    void *to = malloc((size_t)count * size);
    return memcpy(to, from, (size_t)count * size);
}

int taps_keep_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    taps *s = user;
    s->calls[layer] = (int)heads;
    s->maps[layer] = copy(probs, s->sequences * heads * s->rows * s->keys, sizeof *probs);
    return 0;
}

int taps_keep_stats(void *user, const mha_model_stats *t)
{
    taps *s = user;
    const int64_t n = t->layer, rows = s->all * t->heads;
    const bool packed = s->all != s->sequences * s->rows;
    assert_int_equal(n, s->stats_calls++);
    assert_int_equal(t->heads, s->heads);
    assert_int_equal(t->keys, s->keys);
    s->entropy[n] = copy(t->row_entropy, rows, sizeof(float));
    s->max[n] = copy(t->row_max, rows, sizeof(float));
    s->distance[n] = copy(t->row_distance, rows, sizeof(float));
    s->argmax[n] = copy(t->row_argmax, rows, sizeof(int64_t));
    s->received[n] = copy(t->received, packed ? rows : s->sequences * t->heads * t->keys, sizeof(float));
    s->top_prob[n] = copy(t->top_prob, rows * TOP, sizeof(float));
    s->top_key[n] = copy(t->top_key, rows * TOP, sizeof(int64_t));
    return 0;
}

taps taps_shape(const mha_model *model, const mha_model_input *in)
{
    const mha_model_info *info = mha_model_describe(model);
    taps s = {.sequences = in->batch, .layers = info->layers, .heads = info->heads, .rows = in->length};
    s.all = in->starts ? in->starts[in->batch] : in->batch * in->length;
    for (int64_t b = 0; in->starts && b < in->batch; b++) {
        const int64_t n = in->starts[b + 1] - in->starts[b];
        if (b == 0 || n > s.rows) s.rows = n;
    }
    s.keys = s.rows;
    for (int64_t b = 0; in->cache && b < in->batch; b++) {
        const int64_t n = mha_model_cache_length(in->cache, in->batch == 1 ? in->sequence : b) + in->length;
        if (n > s.keys) s.keys = n;
    }
    return s;
}

taps taps_run(const mha_model *model, const mha_model_input *in, unsigned what, const mha_model_head *list,
              int64_t count)
{
    mha_error err = {0};
    taps s = taps_shape(model, in);
    s.hidden = malloc((size_t)(s.all * mha_model_describe(model)->hidden) * sizeof(float));
    const mha_model_output out = {.size = sizeof out,
                                  .last_hidden = what & TAPS_ALONE ? NULL : s.hidden,
                                  .on_attention = what & TAPS_MAPS ? taps_keep_maps : NULL,
                                  .map_heads = list,
                                  .map_count = count,
                                  .on_stats = what & TAPS_STATS ? taps_keep_stats : NULL,
                                  .top_keys = what & TAPS_STATS ? TOP : 0,
                                  .user = &s};
    if (mha_model_forward(model, in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
    return s;
}

void taps_release(taps *s)
{
    for (int n = 0; n < LAYERS; n++) {
        free(s->maps[n]);
        free(s->entropy[n]);
        free(s->max[n]);
        free(s->distance[n]);
        free(s->received[n]);
        free(s->argmax[n]);
        free(s->top_prob[n]);
        free(s->top_key[n]);
    }
    free(s->hidden);
}

void taps_same(const void *a, const void *b, int64_t count, size_t size)
{
    assert_memory_equal(a, b, (size_t)count * size);
}

/* ---- statistics and maps ---- */

/* An input, its statistics and maps, and the tolerance for comparing them. */
typedef struct expectation {
    const mha_model_input *in;
    const taps *s;
    double limit;
} expectation;

static int64_t row_at(const expectation *e, int64_t b, int64_t h, int64_t i)
{
    if (e->in->starts) return h * e->s->all + e->in->starts[b] + i;
    return (b * e->s->heads + h) * e->s->rows + i;
}

static void near(const expectation *e, const char *what, double got, double want)
{
    if (!(fabs(got - want) <= e->limit * (1 + fabs(want)))) fail_msg("%s: got %.9g, expected %.9g", what, got, want);
}

static void check_row(const expectation *e, int64_t layer, int64_t b, int64_t h, int64_t i, int64_t past)
{
    const taps *s = e->s;
    const float *p = s->maps[layer] + ((b * s->heads + h) * s->rows + i) * s->keys;
    const int64_t at = row_at(e, b, h, i);
    double entropy = 0, distance = 0, max = 0;
    for (int64_t j = 0; j < s->keys; j++) {
        const double x = (double)p[j];
        entropy -= x > 0 ? x * log2(x) : 0;
        distance += x * fabs((double)(i + past - j));
        max = fmax(max, x);
    }
    near(e, "entropy", (double)s->entropy[layer][at], entropy);
    near(e, "distance", (double)s->distance[layer][at], distance);
    near(e, "max", (double)s->max[layer][at], max);
    near(e, "probability of argmax", (double)p[s->argmax[layer][at]], max);
    for (int k = 0; k < TOP; k++) {
        const int64_t key = s->top_key[layer][at * TOP + k];
        const double top = (double)s->top_prob[layer][at * TOP + k];
        near(e, "top key", key < 0 ? 0 : (double)p[key], top);
        if (k == 0) near(e, "top probability", top, max);
        int64_t above = 0; /* number of keys with a larger probability, which must be at most k */
        for (int64_t j = 0; j < s->keys; j++)
            above += (double)p[j] > top + e->limit;
        assert_true(above <= k);
    }
}

static void check_received(const expectation *e, int64_t layer, int64_t b, int64_t h, int64_t j)
{
    const taps *s = e->s;
    double sum = 0;
    for (int64_t i = 0; i < s->rows; i++)
        if (taps_is_real(e->in, b, i)) sum += (double)s->maps[layer][((b * s->heads + h) * s->rows + i) * s->keys + j];
    const int64_t at = e->in->starts ? row_at(e, b, h, j) : (b * s->heads + h) * s->keys + j;
    near(e, "received", (double)s->received[layer][at], sum);
}

void taps_check_stats(const mha_model_input *in, const taps *s, const int64_t *past, double limit)
{
    const expectation e = {in, s, limit};
    assert_int_equal(s->stats_calls, s->layers);
    for (int64_t layer = 0; layer < s->layers; layer++)
        for (int64_t b = 0; b < s->sequences; b++)
            for (int64_t h = 0; h < s->heads; h++) {
                for (int64_t i = 0; i < s->rows; i++)
                    if (taps_is_real(in, b, i)) check_row(&e, layer, b, h, i, past ? past[b] : 0);
                for (int64_t j = 0; j < s->keys; j++)
                    if (past || taps_is_real(in, b, j)) check_received(&e, layer, b, h, j);
            }
}

void taps_same_hidden(const mha_model *model, const mha_model_input *in, const taps *a, const taps *b)
{
    const int64_t width = mha_model_describe(model)->hidden;
    for (int64_t n = 0; n < a->all; n++)
        if (in->starts || !in->mask || in->mask[n])
            taps_same(a->hidden + n * width, b->hidden + n * width, width, sizeof(float));
}

/* test_model_taps.c - tests attention data passed to the callbacks of a pass. Maps of selected heads and rows must be
 * bitwise identical to those of all maps, and statistics must agree with the maps. Other results must be bitwise
 * identical with and without callbacks. Tested with padding, masked tokens, packed sequences, a cache, gates and 16-bit
 * types. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 3, L = 23, TOKENS = B * L, VOCAB = 600, LAYERS = 4, H = 4, TOP = 3 };
static const char *const models[] = {"models/bert-tiny", "models/gpt2-tiny", "models/gemma2-tiny"};
enum { MODELS = 3, ENCODER = 0, SLIDING = 2 };

static mha_error err;
static int32_t ids[TOKENS];

static void make_ids(void)
{
    rng r = rng_make(7, 1);
    for (int n = 0; n < TOKENS; n++)
        ids[n] = (int32_t)rng_range(&r, 0, VOCAB - 1);
}

/* ---- a forward pass that copies all data passed to its callbacks ---- */

typedef struct seen {
    int64_t sequences, rows, keys; /* dimensions of a map */
    int64_t all;                   /* total number of rows in all sequences */
    int64_t layers, heads;
    int calls[LAYERS], stats_calls;
    float *maps[LAYERS]; /* [sequences, selected heads, rows, keys] */
    float *entropy[LAYERS], *max[LAYERS], *distance[LAYERS], *received[LAYERS], *top_prob[LAYERS];
    int64_t *argmax[LAYERS], *top_key[LAYERS];
    float *hidden; /* last hidden states [all, E] */
} seen;

static void *copy(const void *from, int64_t count, size_t size)
{
    void *to = malloc((size_t)count * size);
    return memcpy(to, from, (size_t)count * size);
}

static int keep_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    seen *s = user;
    s->calls[layer] = (int)heads;
    s->maps[layer] = copy(probs, s->sequences * heads * s->rows * s->keys, sizeof *probs);
    return 0;
}

static int keep_stats(void *user, const mha_model_stats *t)
{
    seen *s = user;
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

/* flags of the requested data; ALONE excludes the last hidden states, so that the pass ends after the attention of the
 * last layer */
enum { MAPS = 1, STATS = 2, ALONE = 4 };

/* Returns a `seen` with the dimensions of the results for this input, without data. */
static seen shape_of(const mha_model *model, const mha_model_input *in)
{
    const mha_model_info *info = mha_model_describe(model);
    seen s = {.sequences = in->batch, .layers = info->layers, .heads = info->heads, .rows = in->length};
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

static seen run(const mha_model *model, const mha_model_input *in, unsigned what, const mha_model_head *list,
                int64_t count)
{
    seen s = shape_of(model, in);
    s.hidden = malloc((size_t)(s.all * mha_model_describe(model)->hidden) * sizeof(float));
    const mha_model_output out = {.size = sizeof out,
                                  .last_hidden = what & ALONE ? NULL : s.hidden,
                                  .on_attention = what & MAPS ? keep_maps : NULL,
                                  .map_heads = list,
                                  .map_count = count,
                                  .on_stats = what & STATS ? keep_stats : NULL,
                                  .top_keys = what & STATS ? TOP : 0,
                                  .user = &s};
    if (mha_model_forward(model, in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
    return s;
}

static void release(seen *s)
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

static void same(const void *a, const void *b, int64_t count, size_t size)
{
    assert_memory_equal(a, b, (size_t)count * size);
}

/* ---- statistics and maps ---- */

/* An input, its statistics and maps, and the tolerance for comparing them. */
typedef struct expectation {
    const mha_model_input *in;
    const seen *s;
    double limit;
} expectation;

static int64_t row_at(const expectation *e, int64_t b, int64_t h, int64_t i)
{
    if (e->in->starts) return h * e->s->all + e->in->starts[b] + i;
    return (b * e->s->heads + h) * e->s->rows + i;
}

static bool is_real(const mha_model_input *in, int64_t b, int64_t i)
{
    if (in->starts) return i < in->starts[b + 1] - in->starts[b];
    return !in->mask || in->mask[b * in->length + i];
}

static void near(const expectation *e, const char *what, double got, double want)
{
    if (!(fabs(got - want) <= e->limit * (1 + fabs(want)))) fail_msg("%s: got %.9g, expected %.9g", what, got, want);
}

static void check_row(const expectation *e, int64_t layer, int64_t b, int64_t h, int64_t i, int64_t past)
{
    const seen *s = e->s;
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
    const seen *s = e->s;
    double sum = 0;
    for (int64_t i = 0; i < s->rows; i++)
        if (is_real(e->in, b, i)) sum += (double)s->maps[layer][((b * s->heads + h) * s->rows + i) * s->keys + j];
    const int64_t at = e->in->starts ? row_at(e, b, h, j) : (b * s->heads + h) * s->keys + j;
    near(e, "received", (double)s->received[layer][at], sum);
}

static void check_stats(const mha_model_input *in, const seen *s, const int64_t *past, double limit)
{
    const expectation e = {in, s, limit};
    assert_int_equal(s->stats_calls, s->layers);
    for (int64_t layer = 0; layer < s->layers; layer++)
        for (int64_t b = 0; b < s->sequences; b++)
            for (int64_t h = 0; h < s->heads; h++) {
                for (int64_t i = 0; i < s->rows; i++)
                    if (is_real(in, b, i)) check_row(&e, layer, b, h, i, past ? past[b] : 0);
                for (int64_t j = 0; j < s->keys; j++)
                    if (past || is_real(in, b, j)) check_received(&e, layer, b, h, j);
            }
}

/* Fails unless the last hidden states of unmasked tokens are bitwise identical in a and b. */
static void same_hidden(const mha_model *model, const mha_model_input *in, const seen *a, const seen *b)
{
    const int64_t width = mha_model_describe(model)->hidden;
    for (int64_t n = 0; n < a->all; n++)
        if (in->starts || !in->mask || in->mask[n])
            same(a->hidden + n * width, b->hidden + n * width, width, sizeof(float));
}

/* The inputs of passes without a cache. */
enum { PLAIN, PADDED, HOLES, LEFT, PACKED, GATED, INPUTS };
static uint8_t mask[TOKENS];
static float gates[LAYERS * B * H];
static const int64_t starts[B + 1] = {0, 11, 12, 12 + L};

static mha_model_input input_of(int kind)
{
    mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids};
    const int64_t lengths[B] = {L, 9, 1};
    for (int64_t n = 0; n < TOKENS; n++) {
        const int64_t b = n / L, i = n % L;
        mask[n] = kind == LEFT ? i >= L - lengths[b] : kind == HOLES ? i % 7 != b : i < lengths[b];
    }
    for (int n = 0; n < LAYERS * B * H; n++)
        gates[n] = (float)(n % 5) / 4;
    if (kind == PADDED || kind == HOLES || kind == LEFT) in.mask = mask;
    if (kind == PACKED) in.starts = starts;
    if (kind == GATED) in.gates = gates;
    return in;
}

static void stats_are_those_of_maps(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        mha_model *model = case_model(NULL, models[m], NULL);
        for (int kind = 0; kind < INPUTS; kind++) {
            const mha_model_input in = input_of(kind);
            seen both = run(model, &in, MAPS | STATS, NULL, 0), plain = run(model, &in, 0, NULL, 0),
                 stats = run(model, &in, STATS, NULL, 0);
            check_stats(&in, &both, NULL, 2e-6);
            same_hidden(model, &in, &both, &plain);
            same_hidden(model, &in, &stats, &plain);
            for (int64_t n = 0; n < both.layers; n++) /* statistics without maps must be the same */
                for (int64_t row = 0; row < both.all * both.heads; row++)
                    assert_true(both.entropy[n][row] == stats.entropy[n][row] &&
                                both.argmax[n][row] == stats.argmax[n][row]);
            release(&both);
            release(&plain);
            release(&stats);
        }
        mha_model_free(model);
    }
}

/* In a 16-bit model, statistics must agree with the rounded probabilities of the maps. */
static void stats_in_sixteen_bits(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        mha_model *model =
            case_model(NULL, models[m], &(mha_model_options){.size = sizeof(mha_model_options), .dtype = MHA_BF16});
        const mha_model_input in = input_of(PADDED);
        seen both = run(model, &in, MAPS | STATS, NULL, 0), plain = run(model, &in, 0, NULL, 0);
        check_stats(&in, &both, NULL, 2e-6);
        same_hidden(model, &in, &both, &plain);
        release(&both);
        release(&plain);
        mha_model_free(model);
    }
}

/* ---- selected heads ---- */

static void selected_heads_equal_all_heads(void **state)
{
    (void)state;
    static const mha_model_head list[] = {{0, 3}, {0, 1}, {2, 0}, {2, 2}, {2, 0}};
    static const int chosen[LAYERS] = {2, 0, 3, 0}, first[LAYERS] = {0, 2, 2, 5};
    for (int m = 0; m < MODELS; m++) {
        mha_model *model = case_model(NULL, models[m], NULL);
        for (int kind = 0; kind < INPUTS; kind++) {
            const mha_model_input in = input_of(kind);
            seen all = run(model, &in, MAPS, NULL, 0), some = run(model, &in, MAPS | STATS, list, 5);
            const int64_t map = all.rows * all.keys;
            for (int64_t n = 0; n < all.layers; n++) {
                assert_int_equal(all.calls[n], H);
                assert_int_equal(some.calls[n], chosen[n]);
                for (int64_t b = 0; b < B; b++)
                    for (int c = 0; c < chosen[n]; c++)
                        for (int64_t i = 0; i < all.rows; i++)
                            if (kind != HOLES && kind != LEFT ? true : is_real(&in, b, i))
                                same(all.maps[n] + (b * H + list[first[n] + c].head) * map + i * all.keys,
                                     some.maps[n] + (b * chosen[n] + c) * map + i * all.keys, all.keys, sizeof(float));
            }
            same_hidden(model, &in, &all, &some);
            release(&all);
            release(&some);
        }
        mha_model_free(model);
    }
}

/* Tests rows counted from the first or the last row, duplicate rows, and rows that a short sequence does not have. */
static void selected_rows_equal_all_rows(void **state)
{
    (void)state;
    enum { ROWS = 5 };
    static const int64_t rows[B][ROWS] = {{0, -1, 4, -1, 2}, {8, -2, 0, 0, L - 1}, {-1, 0, -2, 3, -L}};
    static const mha_model_head list[] = {{1, 3}, {1, 0}};
    for (int m = 0; m < MODELS; m++) {
        mha_model *model = case_model(NULL, models[m], NULL);
        for (int kind = 0; kind < INPUTS; kind++) {
            const mha_model_input in = input_of(kind);
            seen all = run(model, &in, MAPS, NULL, 0), some = shape_of(model, &in);
            const int64_t lengths[] = {L, 9, 1};
            some.rows = ROWS;
            const mha_model_output out = {.size = sizeof out,
                                          .on_attention = keep_maps,
                                          .map_heads = list,
                                          .map_count = 2,
                                          .map_rows = rows[0],
                                          .map_row_count = ROWS,
                                          .user = &some};
            if (mha_model_forward(model, &in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
            assert_true(some.calls[0] == 0 && some.calls[1] == 2 && some.calls[2] == 0);
            for (int64_t b = 0; b < B; b++)
                for (int n = 0; n < 2 * ROWS; n++) {
                    const int64_t length = kind == PACKED ? starts[b + 1] - starts[b] : kind == PADDED ? lengths[b] : L;
                    const int64_t given = rows[b][n % ROWS], i = given < 0 ? length + given : given;
                    const float *got = some.maps[1] + (b * 2 * ROWS + n) * some.keys;
                    const float *want = all.maps[1] + ((b * H + list[n / ROWS].head) * all.rows + i) * all.keys;
                    if (i >= 0 && i < length)
                        same(got, want, all.keys, sizeof(float));
                    else
                        for (int64_t j = 0; j < all.keys; j++)
                            assert_true(got[j] == 0);
                }
            release(&all);
            release(&some);
        }
        mha_model_free(model);
    }
}

/* The maps and statistics of a sequence must not depend on other sequences of the batch, whether packed or padded. */
static void maps_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        mha_model *model = case_model(NULL, models[m], NULL);
        const mha_model_input in = input_of(PACKED);
        seen all = run(model, &in, MAPS | STATS, NULL, 0);
        for (int64_t b = 0; b < B; b++) {
            const int64_t length = starts[b + 1] - starts[b];
            const mha_model_input one = {.size = sizeof one, .batch = 1, .length = length, .ids = ids + starts[b]};
            seen alone = run(model, &one, MAPS | STATS, NULL, 0);
            for (int64_t n = 0; n < all.layers; n++)
                for (int64_t h = 0; h < H; h++) {
                    const int64_t at = h * all.all + starts[b], here = h * length;
                    same(all.entropy[n] + at, alone.entropy[n] + here, length, sizeof(float));
                    same(all.distance[n] + at, alone.distance[n] + here, length, sizeof(float));
                    same(all.received[n] + at, alone.received[n] + here, length, sizeof(float));
                    same(all.top_key[n] + at * TOP, alone.top_key[n] + here * TOP, length * TOP, sizeof(int64_t));
                    for (int64_t i = 0; i < all.rows; i++) {
                        const float *row = all.maps[n] + ((b * H + h) * all.rows + i) * all.keys;
                        if (i < length) same(row, alone.maps[n] + (here + i) * length, length, sizeof(float));
                        for (int64_t j = i < length ? length : 0; j < all.keys; j++)
                            assert_true(row[j] == 0);
                    }
                }
            release(&alone);
        }
        release(&all);
        mha_model_free(model);
    }
}

/* ---- passes with a cache ---- */

/* Passes a prompt in two pieces and a single token. The rows of the maps must equal those of one pass, and the
 * statistics must agree with the maps. */
static void cached_passes_give_the_same_rows(void **state)
{
    (void)state;
    static const int64_t cuts[] = {0, 13, L - 1, L};
    for (int m = ENCODER + 1; m < MODELS; m++) {
        mha_model *model = case_model(NULL, models[m], NULL);
        const mha_model_input whole = {.size = sizeof whole, .batch = 1, .length = L, .ids = ids};
        seen all = run(model, &whole, MAPS | STATS, NULL, 0);
        mha_model_cache *cache = NULL;
        const mha_model_cache_options o = {.size = sizeof o, .batch = 2, .tokens = L};
        assert_int_equal(mha_model_cache_create(model, &o, &cache, &err), MHA_OK);
        for (int c = 0; c < 3; c++) {
            const int64_t past = cuts[c], length = cuts[c + 1] - past;
            const mha_model_input piece = {
                .size = sizeof piece, .batch = 1, .length = length, .ids = ids + past, .cache = cache, .sequence = 1};
            seen some = run(model, &piece, MAPS | STATS, NULL, 0);
            assert_int_equal(some.keys, past + length);
            check_stats(&piece, &some, &past, 2e-6);
            for (int64_t n = 0; n < all.layers; n++)
                for (int64_t h = 0; h < H; h++)
                    for (int64_t i = 0; i < length; i++) {
                        const int64_t row = h * L + past + i;
                        same(some.maps[n] + (h * length + i) * some.keys, all.maps[n] + row * L, some.keys,
                             sizeof(float));
                        assert_true(some.entropy[n][h * length + i] == all.entropy[n][row]);
                        assert_true(some.distance[n][h * length + i] == all.distance[n][row]);
                        assert_true(some.argmax[n][h * length + i] == all.argmax[n][row]);
                    }
            release(&some);
        }
        mha_model_cache_free(cache);
        release(&all);
        mha_model_free(model);
    }
}

/* Tests caches of every type, with padded sequences of different lengths. */
static void caches_of_every_type(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_Q8_0};
    static const mha_model_head list[] = {{1, 2}};
    for (int m = ENCODER + 1; m < MODELS; m++)
        for (int t = 0; t < 4; t++) {
            mha_model *model = case_model(NULL, models[m], NULL);
            mha_model_cache *cache = NULL, *twin = NULL;
            const mha_model_cache_options o = {.size = sizeof o, .batch = B, .tokens = 2 * L, .dtype = types[t]};
            assert_int_equal(mha_model_cache_create(model, &o, &cache, &err), MHA_OK);
            assert_int_equal(mha_model_cache_create(model, &o, &twin, &err), MHA_OK);
            int64_t past[B] = {0};
            for (int step = 0; step < 2; step++) {
                mha_model_input in = input_of(PADDED), quiet;
                quiet = in;
                in.cache = cache;
                quiet.cache = twin;
                if (step == 1) in.length = quiet.length = 1, in.mask = quiet.mask = NULL;
                seen both = run(model, &in, MAPS | STATS, NULL, 0), plain = run(model, &quiet, MAPS, list, 1);
                check_stats(&in, &both, past, 2e-6);
                same_hidden(model, &in, &both, &plain);
                for (int64_t b = 0; b < B; b++) {
                    past[b] = mha_model_cache_length(cache, b);
                    for (int64_t i = 0; i < in.length; i++)
                        if (is_real(&in, b, i))
                            same(plain.maps[1] + (b * both.rows + i) * both.keys,
                                 both.maps[1] + ((b * H + 2) * both.rows + i) * both.keys, both.keys, sizeof(float));
                }
                release(&both);
                release(&plain);
            }
            assert_true(past[0] == L + 1 && past[2] == 2);
            mha_model_cache_free(cache);
            mha_model_cache_free(twin);
            mha_model_free(model);
        }
}

/* ---- threads, error messages and failed allocations ---- */

static void threads_change_no_bit(void **state)
{
    (void)state;
    seen first = {0};
    const mha_model_input in = input_of(PADDED);
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx = NULL;
        const mha_ctx_options o = {.size = sizeof o, .threads = threads};
        assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
        mha_model *model = case_model(ctx, models[SLIDING], NULL);
        seen s = run(model, &in, STATS, NULL, 0);
        if (threads == 1) first = s;
        for (int64_t n = 0; n < s.layers; n++) {
            same(first.entropy[n], s.entropy[n], s.all * H, sizeof(float));
            same(first.received[n], s.received[n], s.all * H, sizeof(float));
            same(first.top_prob[n], s.top_prob[n], s.all * H * TOP, sizeof(float));
        }
        if (threads > 1) release(&s);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    release(&first);
}

static void *greatest(void *user, size_t bytes, size_t align)
{
    size_t *most = user;
    if (bytes > *most) *most = bytes;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void give_back(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static int finite_stats(void *user, const mha_model_stats *s)
{
    int64_t *rows = user;
    for (int64_t n = 0; n < s->heads * s->keys; n++)
        *rows += isfinite(s->row_entropy[n]) && s->received[n] >= 0;
    return 0;
}

/* The statistics of a long text must not require maps, which would need 4 MiB per head. */
static void statistics_of_a_long_text_need_no_maps(void **state)
{
    (void)state;
    enum { LONG = 1024, LEAST = 900 };
    size_t plain = 0, most = 0;
    int64_t rows = 0;
    int32_t *text = calloc(LONG, sizeof *text);
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = LONG, .ids = text};
    for (int stats = 0; stats < 2; stats++) {
        mha_ctx *ctx = NULL;
        most = 0;
        const mha_ctx_options o = {
            .size = sizeof o, .threads = 1, .allocator = {.alloc = greatest, .free = give_back, .user = &most}};
        assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
        mha_model *model = case_model(ctx, models[SLIDING], NULL);
        for (int n = 0; n < LONG; n++)
            text[n] = 5 + n % 500;
        const mha_model_output out = {.size = sizeof out, .on_stats = stats ? finite_stats : NULL, .user = &rows};
        assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_OK);
        if (!stats) plain = most;
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    assert_int_equal(rows, 4 * H * LONG);
    assert_true(most > plain && most - plain < H * LONG * 40 + LONG * 512); /* the scores of one tile of 128 rows */
    free(text);
}

static void invalid_requests(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, models[ENCODER], NULL);
    const mha_model_input in = input_of(PLAIN);
    seen s = shape_of(model, &in);
    const struct {
        mha_model_head list[2];
        int64_t count, top;
        int maps, stats;
        const char *sentence;
    } wrong[] = {
        {{{3, 0}}, 1, 0, 1, 0, "map_heads[0] must be a head of the model (got head 0 of layer 3)"},
        {{{-1, 0}}, 1, 0, 1, 0, "map_heads[0] must be a head of the model (got head 0 of layer -1)"},
        {{{0, 0}, {1, 4}}, 2, 0, 1, 0, "map_heads[1] must be a head of the model (got head 4 of layer 1)"},
        {{{0, -1}}, 1, 0, 1, 0, "map_heads[0] must be a head of the model (got head -1 of layer 0)"},
        {{{1, 0}, {0, 0}}, 2, 0, 1, 0, "(got layer 0 after 1)"},
        {{{0, 0}}, 0, 0, 1, 0, "must be set together (got 0, given, given)"},
        {{{0, 0}}, 1, 0, 0, 1, "must be set together (got 1, given, NULL)"},
        {{{0, 0}}, 1, 33, 1, 1, "top_keys must be from 0 to 32, and 0 without on_stats (got 33)"},
        {{{0, 0}}, 1, 1, 1, 0, "top_keys must be from 0 to 32, and 0 without on_stats (got 1)"},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        const mha_model_output out = {.size = sizeof out,
                                      .on_attention = wrong[n].maps ? keep_maps : NULL,
                                      .on_stats = wrong[n].stats ? keep_stats : NULL,
                                      .map_heads = wrong[n].list,
                                      .map_count = wrong[n].count,
                                      .top_keys = wrong[n].top,
                                      .user = &s};
        assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_ERR_ARG);
        if (!strstr(err.message, wrong[n].sentence)) fail_msg("%s", err.message);
    }
    const struct {
        int64_t rows[B], count;
        int maps;
        const char *sentence;
    } other[] = {
        {{0, 0, L}, 1, 1, "map_rows for sequence 2 must be from -23 to 22 (got 23)"},
        {{0, -L - 1, 0}, 1, 1, "map_rows for sequence 1 must be from -23 to 22 (got -24)"},
        {{0}, 0, 1, "must be set together (got 0, given, given)"},
        {{0}, 1, 0, "must be set together (got 1, given, NULL)"},
    };
    for (size_t n = 0; n < sizeof other / sizeof *other; n++) {
        const mha_model_output out = {.size = sizeof out,
                                      .on_attention = other[n].maps ? keep_maps : NULL,
                                      .map_rows = other[n].rows,
                                      .map_row_count = other[n].count,
                                      .user = &s};
        assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_ERR_ARG);
        if (!strstr(err.message, other[n].sentence)) fail_msg("%s", err.message);
    }
    mha_model_free(model);
}

static int stop_second(void *user, const mha_model_stats *s)
{
    (void)user;
    return s->layer == 1;
}

static void a_callback_stops_the_pass(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, models[ENCODER], NULL);
    const mha_model_input in = input_of(PLAIN);
    const mha_model_output out = {.size = sizeof out, .on_stats = stop_second};
    assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_ERR_CANCELLED);
    assert_string_equal(err.message, "stopped by on_stats at layer 1");
    mha_model_free(model);
}

static void no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    static const mha_model_head list[] = {{0, 3}, {2, 0}};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
    mha_model *model = case_model(ctx, models[SLIDING], NULL);
    const long live = memory.live;
    const mha_model_input in = input_of(PACKED);
    mha_status status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        seen s = shape_of(model, &in);
        const mha_model_output out = {.size = sizeof out,
                                      .on_attention = keep_maps,
                                      .on_stats = keep_stats,
                                      .map_heads = list,
                                      .map_count = 2,
                                      .top_keys = TOP,
                                      .user = &s};
        memory.budget = memory.calls + n;
        status = mha_model_forward(model, &in, &out, &err);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        assert_int_equal(memory.live, live);
        release(&s);
    }
    assert_true(n > 2);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

/* Without last hidden states, maps and statistics must be bitwise identical, although the feed-forward network of the
 * last layer is not computed. */
static void attention_without_last_hidden_is_the_same(void **state)
{
    (void)state;
    const mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids};
    for (int m = 0; m < MODELS; m++) {
        mha_model *model = case_model(NULL, models[m], NULL);
        seen whole = run(model, &in, MAPS | STATS, NULL, 0), alone = run(model, &in, MAPS | STATS | ALONE, NULL, 0);
        assert_int_equal(alone.stats_calls, whole.stats_calls);
        for (int64_t n = 0; n < whole.layers; n++) {
            same(alone.maps[n], whole.maps[n], B * whole.heads * L * L, sizeof(float));
            same(alone.entropy[n], whole.entropy[n], whole.heads * TOKENS, sizeof(float));
            same(alone.received[n], whole.received[n], whole.heads * TOKENS, sizeof(float));
        }
        release(&whole);
        release(&alone);
        mha_model_free(model);
    }
}

int main(void)
{
    make_ids();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stats_are_those_of_maps),
        cmocka_unit_test(stats_in_sixteen_bits),
        cmocka_unit_test(selected_heads_equal_all_heads),
        cmocka_unit_test(attention_without_last_hidden_is_the_same),
        cmocka_unit_test(selected_rows_equal_all_rows),
        cmocka_unit_test(maps_do_not_depend_on_the_batch),
        cmocka_unit_test(cached_passes_give_the_same_rows),
        cmocka_unit_test(caches_of_every_type),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(statistics_of_a_long_text_need_no_maps),
        cmocka_unit_test(invalid_requests),
        cmocka_unit_test(a_callback_stops_the_pass),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

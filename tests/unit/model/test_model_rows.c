/* test_model_rows.c - the probability rows passed to on_rows must be bitwise identical to the maps: with padding,
 * masked tokens, packed sequences, a cache, selected heads and several threads. All other results must be bitwise
 * identical with and without on_rows. */
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include <stdlib.h>
#include <string.h>

enum { B = 3, L = 23, TOKENS = B * L, VOCAB = 600, LAYERS = 4, H = 4, MAX = 2 * L };
static const char *const models[] = {"models/bert-tiny", "models/gpt2-tiny", "models/gemma2-tiny"};
enum { MODELS = 3, FIRST_DECODER = 1 };

static int32_t ids[TOKENS];
static uint8_t mask[TOKENS];
static const int64_t starts[B + 1] = {0, 11, 12, 12 + L};

/* ---- a forward pass that copies all data passed to its callbacks ---- */

typedef struct seen {
    /* dimensions of a map; for packed sequences, rows and keys are those of the longest sequence */
    int64_t sequences, rows, keys;
    float *maps[LAYERS];                 /* [sequences, H, rows, keys] as passed to on_attention */
    float shown[LAYERS][B][H][MAX][MAX]; /* [layer][sequence][head][row][key] as passed to on_rows */
    int64_t lengths[LAYERS][B][H];       /* number of rows passed to on_rows */
    int64_t row_keys[B];
    float *hidden;
} seen;

static int keep_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    seen *s = user;
    const size_t bytes = (size_t)(s->sequences * heads * s->rows * s->keys) * sizeof *probs;
    assert_int_equal(heads, H);
    s->maps[layer] = malloc(bytes);
    memcpy(s->maps[layer], probs, bytes);
    return 0;
}

static void keep_rows(void *user, int64_t layer, const mha_attn_rows *r)
{
    seen *s = user;
    const float *p = r->p;
    for (int64_t n = 0; n < r->count; n++) {
        memcpy(s->shown[layer][r->sequence][r->head][r->first + n], p + n * r->stride, (size_t)r->keys * sizeof *p);
        s->lengths[layer][r->sequence][r->head]++;
    }
    if (layer == 0 && r->head == 0) s->row_keys[r->sequence] = r->keys;
}

static seen *run(const mha_model *model, const mha_model_input *in, int64_t past, mha_model_output out)
{
    seen *s = calloc(1, sizeof *s);
    mha_error err = {0};
    const int64_t all = in->starts ? in->starts[in->batch] : in->batch * in->length;
    s->sequences = in->batch;
    s->rows = in->starts ? L : in->length;
    s->keys = s->rows + past;
    s->hidden = calloc((size_t)(all * mha_model_describe(model)->hidden), sizeof(float));
    out.size = sizeof out;
    out.last_hidden = s->hidden;
    out.user = s;
    if (mha_model_forward(model, in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
    return s;
}

static void release(seen *s)
{
    for (int n = 0; n < LAYERS; n++)
        free(s->maps[n]);
    free(s->hidden);
    free(s);
}

/* Fails unless each head of sequence b has received lengths[b] rows of keys[b] probabilities, equal to the rows of the
 * map. */
static void check_rows(const seen *s, int64_t layers, const int64_t lengths[B], const int64_t keys[B])
{
    for (int64_t b = 0; b < s->sequences; b++) {
        assert_int_equal(s->row_keys[b], keys[b]);
        for (int64_t layer = 0; layer < layers; layer++)
            for (int64_t h = 0; h < H; h++) {
                const float *map = s->maps[layer] + (b * H + h) * s->rows * s->keys;
                assert_int_equal(s->lengths[layer][b][h], lengths[b]);
                for (int64_t i = 0; i < lengths[b]; i++)
                    assert_memory_equal(s->shown[layer][b][h][i], map + i * s->keys, (size_t)keys[b] * sizeof *map);
            }
    }
}

/* ---- comparison of rows and maps ---- */

enum { PLAIN, PADDED, HOLES, PACKED, INPUTS };

static mha_model_input input_of(int kind)
{
    mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids};
    const int64_t lengths[B] = {L, 9, 1};
    rng r = rng_make(7, 1);
    for (int64_t n = 0; n < TOKENS; n++) {
        ids[n] = (int32_t)rng_range(&r, 0, VOCAB - 1);
        mask[n] = kind == HOLES ? n % L % 7 != n / L : n % L < lengths[n / L];
    }
    if (kind == PADDED || kind == HOLES) in.mask = mask;
    if (kind == PACKED) in.starts = starts;
    return in;
}

static void rows_are_those_of_maps(void **state)
{
    static const int64_t lengths[INPUTS][B] = {{L, L, L}, {L, 9, 1}, {L, L, L}, {11, 1, L}};
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        mha_model *model = case_model(NULL, models[m], NULL);
        const mha_model_info *info = mha_model_describe(model);
        for (int kind = 0; kind < INPUTS; kind++) {
            const mha_model_input in = input_of(kind);
            seen *s = run(model, &in, 0, (mha_model_output){.on_attention = keep_maps, .on_rows = keep_rows}),
                 *plain = run(model, &in, 0, (mha_model_output){0});
            check_rows(s, info->layers, lengths[kind], lengths[kind]);
            for (int64_t n = 0; n < (in.starts ? starts[B] : TOKENS); n++)
                if (!in.mask || mask[n])
                    assert_memory_equal(s->hidden + n * info->hidden, plain->hidden + n * info->hidden,
                                        (size_t)info->hidden * sizeof(float));
            release(plain);
            release(s);
        }
        mha_model_free(model);
    }
}

/* With a cache, the queries of the second half of a sequence attend to keys of both halves. Their rows must equal those
 * of the map. */
static void rows_from_a_cache(void **state)
{
    (void)state;
    for (int m = FIRST_DECODER; m < MODELS; m++) {
        mha_model *model = case_model(NULL, models[m], NULL);
        mha_model_cache *cache;
        const mha_model_cache_options room = {.size = sizeof room, .batch = 1, .tokens = 2 * L};
        mha_model_input in = input_of(PLAIN);
        assert_int_equal(mha_model_cache_create(model, &room, &cache, NULL), MHA_OK);
        in.batch = 1;
        in.cache = cache;
        release(run(model, &in, 0, (mha_model_output){0}));
        seen *s = run(model, &in, L, (mha_model_output){.on_attention = keep_maps, .on_rows = keep_rows});
        const int64_t rows[B] = {L}, keys[B] = {2 * L};
        check_rows(s, mha_model_describe(model)->layers, rows, keys);
        release(s);
        mha_model_cache_free(cache);
        mha_model_free(model);
    }
}

/* on_rows must work without on_attention. With a list of heads, it must receive only rows of these heads, once each. */
static void rows_of_chosen_heads(void **state)
{
    static const mha_model_head list[] = {{0, 3}, {2, 2}, {2, 0}, {2, 2}};
    static const int64_t shown[LAYERS][H] = {[0] = {[3] = 1}, [2] = {[0] = 1, [2] = 1}};
    (void)state;
    mha_model *model = case_model(NULL, models[0], NULL);
    const mha_model_input in = input_of(PACKED);
    seen *all = run(model, &in, 0, (mha_model_output){.on_rows = keep_rows}),
         *some = run(model, &in, 0, (mha_model_output){.on_rows = keep_rows, .map_heads = list, .map_count = 4});
    for (int64_t layer = 0; layer < mha_model_describe(model)->layers; layer++)
        for (int64_t b = 0; b < B; b++)
            for (int64_t h = 0; h < H; h++) {
                assert_int_equal(some->lengths[layer][b][h], shown[layer][h] * (starts[b + 1] - starts[b]));
                if (shown[layer][h])
                    assert_memory_equal(some->shown[layer][b][h], all->shown[layer][b][h], sizeof some->shown[0][0][0]);
            }
    release(all);
    release(some);
    mha_error err = {0};
    const mha_model_output none = {.size = sizeof none, .map_heads = list, .map_count = 4};
    assert_int_equal(mha_model_forward(model, &in, &none, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_model_output: map_count, map_heads and one of on_attention and on_rows must "
                                     "be set together (got 4, given, NULL)");
    mha_model_free(model);
}

/* For any number of threads, on_rows must receive all rows with the same values. Only one thread at a time may pass the
 * rows of a head and sequence. */
static void threads_change_nothing(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, models[2], NULL);
    const mha_model_input in = input_of(PACKED);
    seen *want = run(model, &in, 0, (mha_model_output){.on_rows = keep_rows});
    mha_model_free(model);
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx;
        const mha_ctx_options options = {.size = sizeof options, .threads = threads};
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        model = case_model(ctx, models[2], NULL);
        seen *s = run(model, &in, 0, (mha_model_output){.on_rows = keep_rows});
        assert_memory_equal(s->shown, want->shown, sizeof s->shown);
        assert_memory_equal(s->lengths, want->lengths, sizeof s->lengths);
        release(s);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    release(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_maps),
        cmocka_unit_test(rows_from_a_cache),
        cmocka_unit_test(rows_of_chosen_heads),
        cmocka_unit_test(threads_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

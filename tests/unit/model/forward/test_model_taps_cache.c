/* test_model_taps_cache.c - tests the maps and statistics of passes with a cache. */
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/passes/taps_case.h"

enum { B = TAPS_B, L = TAPS_L, H = TAPS_H, TOP = TAPS_TOP };
static mha_error err;

/* ---- passes with a cache ---- */

/* Passes a prompt in two pieces and a single token. The rows of the maps must equal those of one pass, and the
 * statistics must agree with the maps. */
static void cached_passes_give_the_same_rows(void **state)
{
    (void)state;
    static const int64_t cuts[] = {0, 13, L - 1, L};
    for (int m = TAPS_ENCODER + 1; m < TAPS_MODELS; m++) {
        mha_model *model = case_model(NULL, taps_models[m], NULL);
        const mha_model_input whole = {.size = sizeof whole, .batch = 1, .length = L, .ids = taps_ids};
        taps all = taps_run(model, &whole, TAPS_MAPS | TAPS_STATS, NULL, 0);
        mha_model_cache *cache = NULL;
        const mha_model_cache_options o = {.size = sizeof o, .batch = 2, .tokens = L};
        assert_int_equal(mha_model_cache_create(model, &o, &cache, &err), MHA_OK);
        for (int c = 0; c < 3; c++) {
            const int64_t past = cuts[c], length = cuts[c + 1] - past;
            const mha_model_input piece = {.size = sizeof piece,
                                           .batch = 1,
                                           .length = length,
                                           .ids = taps_ids + past,
                                           .cache = cache,
                                           .sequence = 1};
            taps some = taps_run(model, &piece, TAPS_MAPS | TAPS_STATS, NULL, 0);
            assert_int_equal(some.keys, past + length);
            taps_check_stats(&piece, &some, &past, 2e-6);
            for (int64_t n = 0; n < all.layers; n++)
                for (int64_t h = 0; h < H; h++)
                    for (int64_t i = 0; i < length; i++) {
                        const int64_t row = h * L + past + i;
                        taps_same(some.maps[n] + (h * length + i) * some.keys, all.maps[n] + row * L, some.keys,
                                  sizeof(float));
                        assert_true(some.entropy[n][h * length + i] == all.entropy[n][row]);
                        assert_true(some.distance[n][h * length + i] == all.distance[n][row]);
                        assert_true(some.argmax[n][h * length + i] == all.argmax[n][row]);
                    }
            taps_release(&some);
        }
        mha_model_cache_free(cache);
        taps_release(&all);
        mha_model_free(model);
    }
}

/* Tests caches of every type, with padded sequences of different lengths. */
static void caches_of_every_type(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_Q8_0};
    static const mha_model_head list[] = {{1, 2}};
    for (int m = TAPS_ENCODER + 1; m < TAPS_MODELS; m++)
        for (int t = 0; t < 4; t++) {
            mha_model *model = case_model(NULL, taps_models[m], NULL);
            mha_model_cache *cache = NULL, *twin = NULL;
            const mha_model_cache_options o = {.size = sizeof o, .batch = B, .tokens = 2 * L, .dtype = types[t]};
            assert_int_equal(mha_model_cache_create(model, &o, &cache, &err), MHA_OK);
            assert_int_equal(mha_model_cache_create(model, &o, &twin, &err), MHA_OK);
            int64_t past[B] = {0};
            for (int step = 0; step < 2; step++) {
                mha_model_input in = taps_input(TAPS_PADDED), quiet;
                quiet = in;
                in.cache = cache;
                quiet.cache = twin;
                if (step == 1) in.length = quiet.length = 1, in.mask = quiet.mask = NULL;
                taps both = taps_run(model, &in, TAPS_MAPS | TAPS_STATS, NULL, 0),
                     plain = taps_run(model, &quiet, TAPS_MAPS, list, 1);
                taps_check_stats(&in, &both, past, 2e-6);
                taps_same_hidden(model, &in, &both, &plain);
                for (int64_t b = 0; b < B; b++) {
                    past[b] = mha_model_cache_length(cache, b);
                    for (int64_t i = 0; i < in.length; i++)
                        if (taps_is_real(&in, b, i))
                            taps_same(plain.maps[1] + (b * both.rows + i) * both.keys,
                                      both.maps[1] + ((b * H + 2) * both.rows + i) * both.keys, both.keys,
                                      sizeof(float));
                }
                taps_release(&both);
                taps_release(&plain);
            }
            assert_true(past[0] == L + 1 && past[2] == 2);
            mha_model_cache_free(cache);
            mha_model_cache_free(twin);
            mha_model_free(model);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_passes_give_the_same_rows),
        cmocka_unit_test(caches_of_every_type),
    };
    return cmocka_run_group_tests(tests, taps_setup, NULL);
}

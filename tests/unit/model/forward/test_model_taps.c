/* test_model_taps.c - tests attention data passed to the callbacks of a pass. Maps of selected heads and rows must be
 * bitwise identical to those of all maps, and statistics must agree with the maps. Other results must be bitwise
 * identical with and without callbacks. Tested with padding, masked tokens, packed sequences, gates and 16-bit
 * types. */
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/passes/taps_case.h"

enum { B = TAPS_B, L = TAPS_L, TOKENS = TAPS_TOKENS, LAYERS = TAPS_LAYERS, H = TAPS_H, TOP = TAPS_TOP };
static mha_error err;

/* ---- statistics and maps ---- */

static void stats_are_those_of_maps(void **state)
{
    (void)state;
    for (int m = 0; m < TAPS_MODELS; m++) {
        mha_model *model = case_model(NULL, taps_models[m], NULL);
        for (int kind = 0; kind < TAPS_INPUTS; kind++) {
            const mha_model_input in = taps_input(kind);
            taps both = taps_run(model, &in, TAPS_MAPS | TAPS_STATS, NULL, 0), plain = taps_run(model, &in, 0, NULL, 0),
                 stats = taps_run(model, &in, TAPS_STATS, NULL, 0);
            taps_check_stats(&in, &both, NULL, 2e-6);
            taps_same_hidden(model, &in, &both, &plain);
            taps_same_hidden(model, &in, &stats, &plain);
            for (int64_t n = 0; n < both.layers; n++) /* statistics without maps must be the same */
                for (int64_t row = 0; row < both.all * both.heads; row++)
                    assert_true(both.entropy[n][row] == stats.entropy[n][row] &&
                                both.argmax[n][row] == stats.argmax[n][row]);
            taps_release(&both);
            taps_release(&plain);
            taps_release(&stats);
        }
        mha_model_free(model);
    }
}

/* In a 16-bit model, statistics must agree with the rounded probabilities of the maps. */
static void stats_in_sixteen_bits(void **state)
{
    (void)state;
    for (int m = 0; m < TAPS_MODELS; m++) {
        mha_model *model = case_model(NULL, taps_models[m],
                                      &(mha_model_options){.size = sizeof(mha_model_options), .dtype = MHA_BF16});
        const mha_model_input in = taps_input(TAPS_PADDED);
        taps both = taps_run(model, &in, TAPS_MAPS | TAPS_STATS, NULL, 0), plain = taps_run(model, &in, 0, NULL, 0);
        taps_check_stats(&in, &both, NULL, 2e-6);
        taps_same_hidden(model, &in, &both, &plain);
        taps_release(&both);
        taps_release(&plain);
        mha_model_free(model);
    }
}

/* ---- selected heads ---- */

static void selected_heads_equal_all_heads(void **state)
{
    (void)state;
    static const mha_model_head list[] = {{0, 3}, {0, 1}, {2, 0}, {2, 2}, {2, 0}};
    static const int chosen[LAYERS] = {2, 0, 3, 0}, first[LAYERS] = {0, 2, 2, 5};
    for (int m = 0; m < TAPS_MODELS; m++) {
        mha_model *model = case_model(NULL, taps_models[m], NULL);
        for (int kind = 0; kind < TAPS_INPUTS; kind++) {
            const mha_model_input in = taps_input(kind);
            taps all = taps_run(model, &in, TAPS_MAPS, NULL, 0),
                 some = taps_run(model, &in, TAPS_MAPS | TAPS_STATS, list, 5);
            const int64_t map = all.rows * all.keys;
            for (int64_t n = 0; n < all.layers; n++) {
                assert_int_equal(all.calls[n], H);
                assert_int_equal(some.calls[n], chosen[n]);
                for (int64_t b = 0; b < B; b++)
                    for (int c = 0; c < chosen[n]; c++)
                        for (int64_t i = 0; i < all.rows; i++)
                            if (kind != TAPS_HOLES && kind != TAPS_LEFT ? true : taps_is_real(&in, b, i))
                                taps_same(all.maps[n] + (b * H + list[first[n] + c].head) * map + i * all.keys,
                                          some.maps[n] + (b * chosen[n] + c) * map + i * all.keys, all.keys,
                                          sizeof(float));
            }
            taps_same_hidden(model, &in, &all, &some);
            taps_release(&all);
            taps_release(&some);
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
    for (int m = 0; m < TAPS_MODELS; m++) {
        mha_model *model = case_model(NULL, taps_models[m], NULL);
        for (int kind = 0; kind < TAPS_INPUTS; kind++) {
            const mha_model_input in = taps_input(kind);
            taps all = taps_run(model, &in, TAPS_MAPS, NULL, 0), some = taps_shape(model, &in);
            const int64_t lengths[] = {L, 9, 1};
            some.rows = ROWS;
            const mha_model_output out = {.size = sizeof out,
                                          .on_attention = taps_keep_maps,
                                          .map_heads = list,
                                          .map_count = 2,
                                          .map_rows = rows[0],
                                          .map_row_count = ROWS,
                                          .user = &some};
            if (mha_model_forward(model, &in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
            assert_true(some.calls[0] == 0 && some.calls[1] == 2 && some.calls[2] == 0);
            for (int64_t b = 0; b < B; b++)
                for (int n = 0; n < 2 * ROWS; n++) {
                    const int64_t length = kind == TAPS_PACKED   ? taps_starts[b + 1] - taps_starts[b]
                                           : kind == TAPS_PADDED ? lengths[b]
                                                                 : L;
                    const int64_t given = rows[b][n % ROWS], i = given < 0 ? length + given : given;
                    const float *got = some.maps[1] + (b * 2 * ROWS + n) * some.keys;
                    const float *want = all.maps[1] + ((b * H + list[n / ROWS].head) * all.rows + i) * all.keys;
                    if (i >= 0 && i < length)
                        taps_same(got, want, all.keys, sizeof(float));
                    else
                        for (int64_t j = 0; j < all.keys; j++)
                            assert_true(got[j] == 0);
                }
            taps_release(&all);
            taps_release(&some);
        }
        mha_model_free(model);
    }
}

/* The maps and statistics of a sequence must not depend on other sequences of the batch, whether packed or padded. */
static void maps_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    for (int m = 0; m < TAPS_MODELS; m++) {
        mha_model *model = case_model(NULL, taps_models[m], NULL);
        const mha_model_input in = taps_input(TAPS_PACKED);
        taps all = taps_run(model, &in, TAPS_MAPS | TAPS_STATS, NULL, 0);
        for (int64_t b = 0; b < B; b++) {
            const int64_t length = taps_starts[b + 1] - taps_starts[b];
            const mha_model_input one = {
                .size = sizeof one, .batch = 1, .length = length, .ids = taps_ids + taps_starts[b]};
            taps alone = taps_run(model, &one, TAPS_MAPS | TAPS_STATS, NULL, 0);
            for (int64_t n = 0; n < all.layers; n++)
                for (int64_t h = 0; h < H; h++) {
                    const int64_t at = h * all.all + taps_starts[b], here = h * length;
                    taps_same(all.entropy[n] + at, alone.entropy[n] + here, length, sizeof(float));
                    taps_same(all.distance[n] + at, alone.distance[n] + here, length, sizeof(float));
                    taps_same(all.received[n] + at, alone.received[n] + here, length, sizeof(float));
                    taps_same(all.top_key[n] + at * TOP, alone.top_key[n] + here * TOP, length * TOP, sizeof(int64_t));
                    for (int64_t i = 0; i < all.rows; i++) {
                        const float *row = all.maps[n] + ((b * H + h) * all.rows + i) * all.keys;
                        if (i < length) taps_same(row, alone.maps[n] + (here + i) * length, length, sizeof(float));
                        for (int64_t j = i < length ? length : 0; j < all.keys; j++)
                            assert_true(row[j] == 0);
                    }
                }
            taps_release(&alone);
        }
        taps_release(&all);
        mha_model_free(model);
    }
}

/* ---- threads, error messages and failed allocations ---- */

/* Without last hidden states, maps and statistics must be bitwise identical, although the feed-forward network of the
 * last layer is not computed. */
static void attention_without_last_hidden_is_the_same(void **state)
{
    (void)state;
    const mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = taps_ids};
    for (int m = 0; m < TAPS_MODELS; m++) {
        mha_model *model = case_model(NULL, taps_models[m], NULL);
        taps whole = taps_run(model, &in, TAPS_MAPS | TAPS_STATS, NULL, 0),
             alone = taps_run(model, &in, TAPS_MAPS | TAPS_STATS | TAPS_ALONE, NULL, 0);
        assert_int_equal(alone.stats_calls, whole.stats_calls);
        for (int64_t n = 0; n < whole.layers; n++) {
            taps_same(alone.maps[n], whole.maps[n], B * whole.heads * L * L, sizeof(float));
            taps_same(alone.entropy[n], whole.entropy[n], whole.heads * TOKENS, sizeof(float));
            taps_same(alone.received[n], whole.received[n], whole.heads * TOKENS, sizeof(float));
        }
        taps_release(&whole);
        taps_release(&alone);
        mha_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stats_are_those_of_maps),        cmocka_unit_test(stats_in_sixteen_bits),
        cmocka_unit_test(selected_heads_equal_all_heads), cmocka_unit_test(attention_without_last_hidden_is_the_same),
        cmocka_unit_test(selected_rows_equal_all_rows),   cmocka_unit_test(maps_do_not_depend_on_the_batch),
    };
    return cmocka_run_group_tests(tests, taps_setup, NULL);
}

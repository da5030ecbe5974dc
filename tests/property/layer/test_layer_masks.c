/* test_layer_masks.c - tests rows without visible keys, and dropout of attention weights. */
#include "support/check.h"
#include "support/model/layers.h"
#include <math.h>
#include <string.h>

/* ---- rows without visible keys ---- */

static const float *weights_of(const mha_variant *layer, const mha_variant_input *in, mha_trace *trace)
{
    mha_step_view v;
    layer_run(layer, in, out, trace);
    assert_true(mha_trace_step(trace, MHA_STEP_WEIGHTS, &v));
    return v.data;
}

/* If `keep` masks all keys of row 2, the row must have equal weights for all its keys (0 to 2 if the layer is causal).
 * Other rows must attend only to their unmasked keys. If an additive mask is -infinity for all keys of the row, its
 * weights must be zero. */
static void test_rows_without_a_key(void **state)
{
    (void)state;
    LAYER(layer, weight_split, .d_in = E, .d_out = E, .num_heads = 2);
    mha_trace *trace = layer_trace();
    uint8_t keep[LQ * LQ];
    float additive[LQ * LQ] = {0};
    memset(keep, 1, sizeof keep);
    memset(keep + 2 * LQ, 0, LQ);
    keep[4 * LQ + 1] = 0;
    for (int j = 0; j < LQ; j++)
        additive[2 * LQ + j] = -INFINITY;
    mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = LQ, .query = query, .want_weights = 1};
    in.keep = (mha_mask){keep, 2, {LQ, LQ}};
    const float *w = weights_of(layer, &in, trace);
    for (int h = 0; h < 2; h++, w += LQ * LQ) {
        for (int j = 0; j < LQ; j++)
            assert_true(fabs((double)w[2 * LQ + j] - (j <= 2 ? 1.0 / 3 : 0)) < 1e-7);
        assert_true(w[4 * LQ + 1] == 0 && w[4 * LQ + 2] > 0);
    }
    in.keep = (mha_mask){0};
    in.additive = (mha_mask){additive, 2, {LQ, LQ}};
    w = weights_of(layer, &in, trace);
    for (int j = 0; j < LQ; j++)
        assert_true(w[2 * LQ + j] == 0);
    assert_memory_equal(out + 2 * E, layer_parameter(layer, "o_proj.bias")->data, E * sizeof *out);
    mha_trace_free(trace);
    mha_variant_free(layer);
}

/* If `keep` masks all keys of row 2, the row must have equal weights even if a mask is added per head or sample. The
 * weights of other rows must not change. */
static void test_rows_without_a_key_with_additions(void **state)
{
    (void)state;
    enum { H = 2, ALONE = 2 };
    LAYER(layer, standard_mha, .d_model = E, .num_heads = H);
    mha_trace *trace = layer_trace();
    static float added[B * H * LQ * LQ], want[B * H * LQ * LQ];
    uint8_t keep[LQ * LQ];
    memset(keep, 1, sizeof keep);
    for (int n = 0; n < B * H * LQ * LQ; n++)
        added[n] = n % 7 == 3 ? -INFINITY : (float)(n % 5);
    mha_variant_input in = {.size = sizeof in, .batch = B, .q_len = LQ, .query = query, .want_weights = 1};
    for (int blocked = 0; blocked < 2; blocked++)
        for (int wide = 0; wide < 2; wide++) {
            const mha_mask mask = {added, wide ? 4 : 2, {wide ? B : LQ, wide ? H : LQ, LQ, LQ}};
            if (blocked)
                for (int n = 0; n < B * H * LQ * LQ; n++)
                    added[n] = n % 3 == 0;
            in.additive = blocked ? (mha_mask){0} : mask;
            in.blocked = blocked ? mask : (mha_mask){0};
            memset(keep, 1, sizeof keep);
            in.keep = (mha_mask){keep, 2, {LQ, LQ}};
            memcpy(want, weights_of(layer, &in, trace), sizeof want);
            memset(keep + ALONE * LQ, 0, LQ);
            const float *w = weights_of(layer, &in, trace);
            for (int n = 0; n < B * H * LQ * LQ; n++)
                assert_true(n / LQ % LQ == ALONE ? fabs((double)w[n] - 1.0 / LQ) < 1e-7 : w[n] == want[n]);
        }
    mha_trace_free(trace);
    mha_variant_free(layer);
}

/* ---- dropout ---- */

static void test_dropout(void **state)
{
    (void)state;
    enum { H = 4, SCORES = B * H * LQ * LQ };
    LAYER(layer, weight_split, .d_in = E, .d_out = E, .num_heads = H, .dropout = 0.4);
    mha_rng rng, same, untouched;
    mha_rng_manual_seed(&rng, 9);
    same = untouched = rng;
    mha_variant_input in = {.size = sizeof in, .batch = B, .q_len = LQ, .query = query, .rng = &rng};
    layer_run(layer, &in, other, NULL); /* without training = 1, dropout must be off and the generator unchanged */
    assert_memory_equal(&rng, &untouched, sizeof rng);
    in.training = 1;
    layer_run(layer, &in, out, NULL);
    assert_memory_not_equal(out, other, (size_t)(B * LQ * E) * sizeof *out);
    uint8_t keep[SCORES];
    assert_int_equal(mha_rng_dropout_mask(&same, 0.4, MHA_RNG_ROUTE_DEFAULT, keep, SCORES, &err), MHA_OK);
    assert_memory_equal(&rng, &same, sizeof rng);
    in.rng = NULL;
    in.dropout_keep = keep;
    layer_run(layer, &in, other, NULL);
    assert_memory_equal(out, other, (size_t)(B * LQ * E) * sizeof *out);
    in.dropout_keep = NULL; /* without rng and dropout_keep, the mask is computed from dropout_seed */
    in.dropout_seed = 1;
    layer_run(layer, &in, out, NULL);
    layer_run(layer, &in, other, NULL);
    assert_memory_equal(out, other, (size_t)(B * LQ * E) * sizeof *out);
    in.dropout_seed = 2;
    layer_run(layer, &in, other, NULL);
    assert_memory_not_equal(out, other, (size_t)(B * LQ * E) * sizeof *out);
    mha_variant_free(layer);
}

/* A layer with separate projections per head must generate its dropout masks head by head, each for the whole batch. */
static void test_dropout_head_by_head(void **state)
{
    (void)state;
    enum { H = 3, PLANE = LQ * LQ };
    LAYER(layer, stacked_heads, .d_in = E, .d_out = E, .num_heads = H, .dropout = 0.4);
    mha_rng rng, same;
    mha_rng_manual_seed(&rng, 9);
    same = rng;
    mha_variant_input in = {.size = sizeof in, .batch = B, .q_len = LQ, .query = query, .rng = &rng, .training = 1};
    layer_run(layer, &in, out, NULL);
    uint8_t keep[B * H * PLANE], drawn_head[B * PLANE];
    for (int h = 0; h < H; h++) {
        assert_int_equal(mha_rng_dropout_mask(&same, 0.4, MHA_RNG_ROUTE_DEFAULT, drawn_head, B * PLANE, &err), MHA_OK);
        for (int b = 0; b < B; b++)
            memcpy(keep + (b * H + h) * PLANE, drawn_head + b * PLANE, PLANE);
    }
    in.rng = NULL;
    in.dropout_keep = keep;
    layer_run(layer, &in, other, NULL);
    assert_memory_equal(out, other, (size_t)(B * LQ * E) * sizeof *out);
    mha_variant_free(layer);
}

/* With a dropout of 1, all attention weights are dropped, so the result must be the bias of o_proj. */
static void test_everything_dropped(void **state)
{
    (void)state;
    LAYER(layer, weight_split, .d_in = E, .d_out = E, .num_heads = 4, .dropout = 1);
    const mha_variant_input in = {.size = sizeof in, .batch = B, .q_len = LQ, .query = query, .training = 1};
    layer_run(layer, &in, out, NULL);
    for (int r = 0; r < B * LQ; r++)
        assert_memory_equal(out + r * E, layer_parameter(layer, "o_proj.bias")->data, E * sizeof *out);
    mha_variant_free(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_without_a_key),
        cmocka_unit_test(test_rows_without_a_key_with_additions),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_dropout_head_by_head),
        cmocka_unit_test(test_everything_dropped),
    };
    return cmocka_run_group_tests(tests, layer_inputs, NULL);
}

/* test_kept_heads.c - attention layers that select heads per sequence must not compute a head that no sequence keeps.
 * The results must be bitwise identical to those of a call that computes all heads. */
#include "mha/layer.h"
#include "support/check.h"
#include "support/rng.h"
#include <math.h>
#include <string.h>

enum { B = 3, L = 9, H = 6, ROWS = B * L };
enum { E = 24, D = 4, ALL = H * D };
/* A layer whose products are split if the ISA supports it; its heads do not begin at multiples of 32. */
enum { WIDE_E = 264, WIDE_D = 48, MAX = H * WIDE_D };

/* The weights of a layer, and the options that point to them. */
typedef struct parts {
    float q[MAX * WIDE_E], k[MAX * WIDE_E], v[MAX * WIDE_E], o[WIDE_E * MAX], score[H * WIDE_E], bias[MAX],
        zeros[WIDE_E];
    float score_bias[H];
    mha_attn_layer_options options;
} parts;

static void fill(float *x, int count, uint64_t seed)
{
    rng r = rng_make(seed, 0);
    for (int n = 0; n < count; n++)
        x[n] = (float)rng_uniform(&r) - 0.5F;
}

static void make(parts *p, bool wide, mha_choice of, int64_t kv_heads, int64_t v_heads)
{
    const int hidden = wide ? WIDE_E : E, head_dim = wide ? WIDE_D : D, all = H * head_dim;
    memset(p, 0, sizeof *p);
    fill(p->q, all * hidden, 1), fill(p->k, all * hidden, 2), fill(p->v, all * hidden, 3), fill(p->o, hidden * all, 4);
    fill(p->score, H * hidden, 5), fill(p->bias, all, 6), fill(p->score_bias, H, 7);
    p->options = (mha_attn_layer_options){.size = sizeof p->options,
                                          .hidden = hidden,
                                          .heads = H,
                                          .kv_heads = kv_heads,
                                          .v_heads = v_heads,
                                          .head_dim = head_dim,
                                          .q = {.weight = p->q, .bias = p->bias, .many_rows = wide},
                                          .k = {.weight = p->k, .bias = p->bias, .many_rows = wide},
                                          .v = {.weight = p->v, .bias = p->bias, .many_rows = wide},
                                          .o = {.weight = p->o, .bias = p->zeros, .many_rows = wide},
                                          .choice = {.of = of,
                                                     .selection = MHA_SELECTION_SOFT,
                                                     .keep = 3,
                                                     .score = {.weight = p->score, .bias = p->score_bias}}};
}

/* Computes the output y of a layer and its kept heads. If wants_all is true, the call also requests probabilities and
 * adds fills of 0, so that the layer computes all heads and multiplies all of them by the output projection. */
static void run(const parts *p, bool wants_all, const mha_layer_input *input, float *y, uint8_t *kept)
{
    static const float fills[MAX];
    static float x[ROWS * WIDE_E], probs[B * H * L * L];
    mha_attn_layer *layer = NULL;
    mha_error err = {0};
    mha_layer_input in = *input;
    in.size = sizeof in, in.kept = kept, in.probs = wants_all ? probs : NULL, in.fills = wants_all ? fills : NULL;
    const int64_t elements = ROWS * p->options.hidden;
    fill(x, (int)elements, 9);
    if (mha_attn_layer_create(NULL, &p->options, &layer, &err) != MHA_OK) fail_msg("%s", err.message);
    memset(y, 0, (size_t)elements * sizeof *y);
    if (mha_attn_layer_forward(layer, &in, x, y, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_attn_layer_free(layer);
}

/* y and the kept heads must be bitwise identical in both modes of `run`. Tests batches with and without padding, and
 * key and value head counts that are equal to the query head count, below it, or different from each other. */
static void test_bits_of_all_heads(void **state)
{
    (void)state;
    static const int64_t shared[][2] = {{H, H}, {3, 3}, {3, 2}, {1, 6}}, lengths[B] = {9, 4, 6};
    static float one[ROWS * WIDE_E], all[ROWS * WIDE_E];
    static parts p;
    for (int n = 0; n < 2 * 2 * 4 * 2; n++) {
        const mha_layer_input in = {.batch = B, .length = L, .lengths = n % 2 ? lengths : NULL};
        const int64_t *heads = shared[n / 4 % 4];
        uint8_t kept[2][B * H];
        make(&p, n / 16 > 0, n / 2 % 2 ? MHA_CHOICE_HEADS : MHA_CHOICE_EXPERTS, heads[0], heads[1]);
        const int64_t hidden = p.options.hidden;
        for (int h = 0; h < H && n / 16 > 0; h++)
            p.score_bias[h] = h % 2 ? 100 : -100; /* all sequences keep the same heads */
        run(&p, false, &in, one, kept[0]);
        run(&p, true, &in, all, kept[1]);
        assert_memory_equal(kept[0], kept[1], sizeof *kept);
        for (int r = 0; r < ROWS; r++)
            if (r % L < (in.lengths ? lengths[r / L] : L))
                assert_memory_equal(one + r * hidden, all + r * hidden, (size_t)hidden * sizeof *one);
    }
}

/* Sets the weights of heads that no sequence keeps to NaN. NaN in these weights must not change the result. */
static void test_other_heads_are_not_computed(void **state)
{
    (void)state;
    static float clean[ROWS * E], poisoned[ROWS * E];
    static parts p;
    for (int of = MHA_CHOICE_EXPERTS; of <= MHA_CHOICE_HEADS; of++) {
        uint8_t kept[B * H];
        make(&p, false, (mha_choice)of, H, H);
        for (int h = 0; h < H; h++)
            p.score_bias[h] = h % 2 ? 100 : -100;
        run(&p, false, &(mha_layer_input){.batch = B, .length = L}, clean, kept);
        for (int h = 0; h < H; h += 2)
            for (int n = 0; n < D * E; n++) {
                p.q[h * D * E + n] = p.k[h * D * E + n] = p.v[h * D * E + n] = NAN;
                p.o[n / D * ALL + h * D + n % D] = NAN;
            }
        run(&p, false, &(mha_layer_input){.batch = B, .length = L}, poisoned, kept);
        for (int n = 0; n < B * H; n++)
            assert_int_equal(kept[n], n % 2);
        assert_memory_equal(clean, poisoned, sizeof clean);
        assert_true(isfinite(clean[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_of_all_heads),
        cmocka_unit_test(test_other_heads_are_not_computed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

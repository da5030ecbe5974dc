/* test_model_choice.c - tests encoders whose layers select heads per text. Results are compared with formulas in double
 * and with the layers of variants.h that select heads; gradients are compared with finite differences of the
 * formulas. */
#include "mha/model_grads.h"
#include "mha/rng.h"
#include "support/check.h"
#include "support/model/choosing.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = CHOOSING_B, L = CHOOSING_L, E = CHOOSING_E, H = CHOOSING_H, D = E / H };

/* ---- hidden states ---- */

/* Returns the coefficient of element n of the hidden states in the loss, which is a weighted sum over unmasked
 * tokens. */
static float weight_of(const mha_model_input *in, int n)
{
    return in->mask[n / E] ? (float)sin(1 + n) : 0;
}

static double loss_of(const choosing_naive *d, const mha_model_input *in)
{
    double x[L][E], score[CHOOSING_SCORES], sum = 0;
    for (int b = 0; b < B; b++) {
        choosing_run(d, in, b, x, score);
        for (int n = 0; n < L * E; n++)
            sum += (double)weight_of(in, b * L * E + n) * x[n / E][n % E];
    }
    return sum;
}

static void test_states_against_the_formulas(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * choosing_count; n++) {
        mha_model *model = choosing_model(NULL, choosing_config(choosing_cases[n / 2].entry, 1));
        choosing_naive d = choosing_take(&choosing_cases[n / 2], model);
        float hidden[B * L * E];
        double x[L][E], score[CHOOSING_SCORES], worst = 0;
        const mha_model_input in = choosing_input(n % 2);
        const mha_model_output out = {.size = sizeof out, .last_hidden = hidden};
        assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
        for (int b = 0; b < B; b++) {
            choosing_run(&d, &in, b, x, score);
            for (int k = 0; k < L * E; k++)
                if (in.mask[b * L + k / E]) worst = fmax(worst, fabs(x[k / E][k % E] - (double)hidden[b * L * E + k]));
        }
        if (!(worst < 2e-5))
            fail_msg("%s: error of the hidden states must be below 2e-5 (got %g)", choosing_cases[n / 2].entry, worst);
        choosing_free(&d);
        mha_model_free(model);
    }
}

/* ---- gradients ---- */

static mha_model_grads *backward(const mha_model *model, const mha_model_input *in, bool recompute, float *gates)
{
    const mha_model_grads_options o = {.size = sizeof o, .recompute = recompute};
    float dhidden[B * L * E];
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    for (int n = 0; n < B * L * E; n++)
        dhidden[n] = weight_of(in, n);
    const mha_model_gradient g = {.size = sizeof g, .last_hidden = dhidden, .gates = gates};
    assert_int_equal(mha_model_grads_create(model, &o, &grads, &err), MHA_OK);
    if (mha_model_grads_forward(grads, in, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_model_grads_backward(grads, &g, &err) != MHA_OK) fail_msg("%s", err.message);
    return grads;
}

static int64_t size_of(const mha_named_tensor *t)
{
    return t->shape[0] * (t->rank == 2 ? t->shape[1] : 1);
}

/* Compares gradients of a tensor with finite differences: all elements of head scores, and five elements of any other
 * tensor. */
static void check_tensor(choosing_naive *d, const mha_model_input *in, const mha_named_tensor *t, double *values)
{
    const double step = 1e-6;
    const int64_t all = size_of(t), some = strstr(t->name, "head_choice") ? all : 5;
    for (int64_t k = 0; k < some; k++) {
        double *w = &values[(k * all / some + 29 * k) % all], was = *w, difference;
        *w = was + step;
        difference = loss_of(d, in);
        *w = was - step;
        difference = (difference - loss_of(d, in)) / (2 * step);
        *w = was;
        const double got = (double)((const float *)t->data)[w - values];
        if (!(fabs(difference - got) < 1e-4))
            fail_msg("%s: %s[%lld]: gradient %g, expected %g by finite differences", d->c->entry, t->name,
                     (long long)(w - values), got, difference);
    }
}

static void test_gradients_against_differences(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * choosing_count; n++) {
        const choosing *c = &choosing_cases[n / 2];
        mha_model *model = choosing_model(NULL, choosing_config(c->entry, 1));
        choosing_naive d = choosing_take(c, model);
        const mha_model_input in = choosing_input(n % 2);
        int64_t count;
        mha_model_grads *grads = backward(model, &in, n / 2 % 2, NULL);
        const mha_named_tensor *list = mha_model_grads_list(grads, &count);
        for (int64_t t = 0; t < count; t++) {
            /* skips straight-through gradients, which are not derivatives; test_straight_through tests them */
            if (strstr(list[t].name, "cls.") || c->through) continue;
            assert_string_equal(list[t].name, d.name[t]);
            check_tensor(&d, &in, &list[t], d.value[t]);
        }
        mha_model_grads_free(grads);
        choosing_free(&d);
        mha_model_free(model);
    }
}

static const float *gradient_of(const mha_model_grads *grads, const char *part)
{
    int64_t count;
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    for (int64_t n = 0; n < count; n++)
        if (strstr(list[n].name, part)) return list[n].data;
    fail_msg("gradients must include \"%s\"", part);
    return NULL;
}

/* Returns the contribution of text b to the loss if its gates are multiplied by `scale`. */
static double text_loss(choosing_naive *d, const mha_model_input *in, int b, double scale, double *score)
{
    double x[L][E], sum = 0;
    d->scale = scale;
    choosing_run(d, in, b, x, score);
    d->scale = 1;
    for (int n = 0; n < L * E; n++)
        sum += (double)weight_of(in, b * L * E + n) * x[n / E][n % E];
    return sum;
}

/* Computes the expected gradients of the pruning scores: the derivative of the loss with respect to a head's gate,
 * times the derivative of the sigmoid. */
static void want_of_heads(choosing_naive *d, const mha_model_input *in, const float *dgates, double *want)
{
    double score[CHOOSING_SCORES];
    for (int b = 0; b < B; b++) {
        text_loss(d, in, b, 1, score);
        for (int h = 0; h < H; h++) {
            const double s = 1 / (1 + exp(-score[h]));
            want[h] += s * (1 - s) * (double)dgates[b * H + h]; /* dgates is 0 for heads that are not selected */
        }
    }
}

/* Computes the expected gradients of the scores of the head options: the derivative of the loss with respect to a
 * common factor of all gates of a text, times the derivative of the softmax. */
static void want_of_options(choosing_naive *d, const mha_model_input *in, double *want)
{
    for (int b = 0; b < B; b++) {
        double score[CHOOSING_SCORES], sum = 0;
        const double slope = (text_loss(d, in, b, 1 + 1e-6, score) - text_loss(d, in, b, 1 - 1e-6, score)) / 2e-6;
        int best = 0;
        for (int o = 0; o < 3; o++) {
            sum += exp(score[o]);
            best = score[o] > score[best] ? o : best;
        }
        for (int o = 0; o < 3; o++)
            want[o] += slope * exp(score[best]) / sum * ((o == best) - exp(score[o]) / sum);
    }
}

static void test_straight_through(void **state)
{
    (void)state;
    for (int n = 0; n < choosing_count; n++) {
        const choosing *c = &choosing_cases[n];
        const bool split = c->options[0] != 0;
        float dgates[B * H];
        double want[CHOOSING_SCORES] = {0};
        if (!c->through) continue;
        mha_model *model = choosing_model(NULL, choosing_config(c->entry, 1));
        choosing_naive d = choosing_take(c, model);
        const mha_model_input in = choosing_input(true);
        mha_model_grads *grads = backward(model, &in, false, split ? NULL : dgates);
        const float *got = gradient_of(grads, "head_choice.bias");
        if (split)
            want_of_options(&d, &in, want);
        else
            want_of_heads(&d, &in, dgates, want);
        for (int s = 0; s < (split ? 3 : H); s++)
            if (!(fabs((double)got[s] - want[s]) < 2e-5))
                fail_msg("%s: got %g, expected %g", c->entry, (double)got[s], want[s]);
        mha_model_grads_free(grads);
        choosing_free(&d);
        mha_model_free(model);
    }
}

/* Gates of the caller must be multiplied with those of the layer. With gates of 1, hidden states and gate gradients
 * must be bitwise identical to those without gates; with other gates, hidden states must differ. */
static void test_gates_of_the_call(void **state)
{
    (void)state;
    for (int n = 0; n < choosing_count && !choosing_cases[n].options[0]; n++) {
        mha_model *model = choosing_model(NULL, choosing_config(choosing_cases[n].entry, 1));
        float gates[B * H], slopes[2][B * H], hidden[3][B * L * E];
        mha_model_input in = choosing_input(false);
        for (int pass = 0; pass < 3; pass++) {
            const mha_model_output out = {.size = sizeof out, .last_hidden = hidden[pass]};
            for (int h = 0; h < B * H; h++)
                gates[h] = pass < 2 ? 1 : (float)(h % 3);
            in.gates = pass ? gates : NULL;
            assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
            mha_model_grads *grads = backward(model, &in, false, slopes[pass == 1]);
            mha_model_grads_free(grads);
            if (pass == 1) assert_memory_equal(slopes[0], slopes[1], sizeof *slopes);
        }
        assert_memory_equal(hidden[0], hidden[1], sizeof *hidden);
        assert_memory_not_equal(hidden[0], hidden[2], sizeof *hidden);
        mha_model_free(model);
    }
}

/* ---- the layers of variants.h ---- */

static void copy_named(const mha_named_tensor *list, int64_t count, const char *name, float *to)
{
    for (int64_t n = 0; n < count; n++)
        if (strcmp(list[n].name, name) == 0) {
            memcpy(to, list[n].data, (size_t)size_of(&list[n]) * sizeof *to);
            return;
        }
    fail_msg("layer must have parameter %s", name);
}

/* Returns a weight matrix of the variant with its bias. It is concatenated from `parts` matrices of `of` rows, one per
 * expert. */
static mha_matrix take(const mha_variant *variant, const char *format, int parts, int of, int in, float *room)
{
    int64_t count;
    const mha_named_tensor *list = mha_variant_parameters(variant, &count);
    float *bias = room + parts * of * in;
    for (int p = 0; p < parts; p++) {
        char stem[64], name[80];
        snprintf(stem, sizeof stem, format, p);
        snprintf(name, sizeof name, "%s.weight", stem);
        copy_named(list, count, name, room + p * of * in);
        snprintf(name, sizeof name, "%s.bias", stem);
        copy_named(list, count, name, bias + p * of);
    }
    return (mha_matrix){.weight = room, .bias = bias};
}

static void compare_with(mha_variant *variant, const mha_layer_choice *choice, const char *score, bool experts)
{
    static float room[5][E * (E + 1)];
    float x[B * L * E], want[B * L * E], got[B * L * E];
    mha_trace *trace = NULL;
    mha_attn_layer *layer = NULL;
    mha_error err = {0};
    mha_attn_layer_options o = {.size = sizeof o, .hidden = E, .heads = H, .choice = *choice};
    o.choice.score = choice->of == MHA_CHOICE_OPTIONS ? take(variant, score, 1, 5, 7, room[0])
                                                      : take(variant, score, 1, H, E, room[0]);
    o.q = take(variant, experts ? "experts.%d.q_proj" : "q_proj", experts ? H : 1, experts ? D : E, E, room[1]);
    o.k = take(variant, experts ? "experts.%d.k_proj" : "k_proj", experts ? H : 1, experts ? D : E, E, room[2]);
    o.v = take(variant, experts ? "experts.%d.v_proj" : "v_proj", experts ? H : 1, experts ? D : E, E, room[3]);
    o.o = take(variant, "o_proj", 1, E, E, room[4]);
    for (int n = 0; n < B * L * E; n++)
        x[n] = (float)sin(3 * n + n * n);
    const mha_variant_input vin = {
        .size = sizeof vin, .batch = B, .q_len = L, .kv_len = L, .query = x, .key = x, .value = x};
    assert_int_equal(mha_trace_create(NULL, &trace, &err), MHA_OK);
    if (mha_variant_forward(variant, &vin, want, trace, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_attn_layer_create(NULL, &o, &layer, &err) != MHA_OK) fail_msg("%s", err.message);
    const mha_layer_input in = {.size = sizeof in, .batch = B, .length = L};
    if (mha_attn_layer_forward(layer, &in, x, got, &err) != MHA_OK) fail_msg("%s", err.message);
    case_near(score, want, got, B * L * E, 2e-6);
    mha_attn_layer_free(layer);
    mha_trace_free(trace);
    mha_variant_free(variant);
}

static void compare_options(mha_rng *rng, mha_selection selection)
{
    static const int64_t options[] = {1, 2, 4, 8, 16};
    static float room[(E + 1) * E];
    const mha_adaptive_heads_options o = {.size = sizeof o,
                                          .d_model = E,
                                          .head_options = options,
                                          .head_option_count = 5,
                                          .predictor_width = 7,
                                          .selection = selection};
    mha_layer_choice choice = {.of = MHA_CHOICE_OPTIONS, .option_count = 5, .selection = selection};
    mha_variant *variant = NULL;
    memcpy(choice.options, options, sizeof options);
    assert_int_equal(mha_adaptive_heads_create(NULL, &o, &variant, NULL), MHA_OK);
    assert_int_equal(mha_variant_init(variant, rng, NULL), MHA_OK);
    choice.hidden = take(variant, "head_predictor.0", 1, 7, E, room);
    choice.hidden.out = 7;
    compare_with(variant, &choice, "head_predictor.2", false);
}

static void test_against_the_variants(void **state)
{
    (void)state;
    mha_variant *variant = NULL;
    mha_rng rng;
    mha_rng_manual_seed(&rng, 3);
    for (int k = 1; k <= H; k++) {
        const mha_moe_heads_options moe = {
            .size = sizeof moe, .d_model = E, .num_heads = H, .top_k = k, .expert_output = MHA_EXPERT_SLOT};
        assert_int_equal(mha_moe_heads_create(NULL, &moe, &variant, NULL), MHA_OK);
        assert_int_equal(mha_variant_init(variant, &rng, NULL), MHA_OK);
        compare_with(variant, &(mha_layer_choice){.of = MHA_CHOICE_EXPERTS, .keep = k}, "router", true);
    }
    for (int n = 0; n < 3 * H; n++) {
        const mha_selection selection = (mha_selection)(n % 3);
        const mha_head_pruning_options pruning = {.size = sizeof pruning,
                                                  .d_model = E,
                                                  .num_heads = H,
                                                  .prune_ratio = 1 - (n / 3 + 1) / 4.0,
                                                  .selection = selection};
        assert_int_equal(mha_head_pruning_create(NULL, &pruning, &variant, NULL), MHA_OK);
        assert_int_equal(mha_variant_init(variant, &rng, NULL), MHA_OK);
        const mha_layer_choice choice = {.of = MHA_CHOICE_HEADS, .keep = n / 3 + 1, .selection = selection};
        compare_with(variant, &choice, "head_importance", false);
        compare_options(&rng, selection);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_against_the_formulas),
        cmocka_unit_test(test_gradients_against_differences),
        cmocka_unit_test(test_straight_through),
        cmocka_unit_test(test_gates_of_the_call),
        cmocka_unit_test(test_against_the_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_model_activations.c - compares activations inside attention with the formula in double, for every family and
 * every mask, with packed sequences, fills, pruned layers and 16-bit types. */
#include "support/check.h"
#include "support/passes/inner_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = INNER_B, L = INNER_L, TOKENS = B * L, LAYERS = INNER_LAYERS, H = INNER_H, WIDEST = INNER_WIDEST };

/* ---- values of the activations ---- */

typedef struct expectation {
    const inner_family *f;
    const mha_model_input *in;
    const mha_model_activations *a;
    double limit;
} expectation;

static void near(const expectation *e, const char *what, int64_t row, double got, double want)
{
    if (!(fabs(got - want) <= e->limit * (1 + fabs(want))))
        fail_msg("%s, layer %d, row %d: %s: got %.9g, expected %.9g", e->f->folder, (int)e->a->layer, (int)row, what,
                 got, want);
}

static void check_context(const expectation *e, int64_t row)
{
    const mha_model_activations *a = e->a;
    const int64_t D = a->head_dim;
    double p[TOKENS];
    for (int64_t h = 0; h < a->heads; h++) {
        const int64_t g = h / (a->heads / a->kv_heads);
        const double gate = inner_gate(e->in, a->layer, row, h);
        const float *fill = e->in->fills ? e->in->fills + (a->layer * H + h) * D : NULL;
        inner_probs(e->f, e->in, a, row, h, p);
        for (int64_t d = 0; d < D; d++) {
            double c = 0;
            for (int64_t j = 0; j < a->rows; j++)
                if (p[j] > 0) c += p[j] * (double)a->v[j * a->stride + g * D + d];
            near(e, "context", row, (double)a->context[(row * a->heads + h) * D + d],
                 gate * c + (fill ? (double)fill[d] : 0));
        }
    }
}

static void check_out(const expectation *e, int64_t row, const float *weight, const float *bias, int64_t width)
{
    const mha_model_activations *a = e->a;
    const int64_t n = a->heads * a->head_dim;
    for (int64_t i = 0; i < width; i++) {
        double y = bias ? (double)bias[i] : 0;
        for (int64_t k = 0; k < n; k++)
            y += (double)a->context[row * n + k] * (double)weight[e->f->transposed ? k * width + i : i * n + k];
        near(e, "out", row, (double)a->out[row * width + i], y);
    }
}

static void check_layer(const expectation *e, const mha_file *file, int64_t width)
{
    char name[128];
    snprintf(name, sizeof name, e->f->weight, (int)e->a->layer);
    float *weight = case_floats(file, name), *bias = NULL;
    if (e->f->bias) {
        snprintf(name, sizeof name, e->f->bias, (int)e->a->layer);
        bias = case_floats(file, name);
    }
    for (int64_t r = 0; r < e->a->rows; r++)
        if (inner_is_real(e->in, r)) {
            check_context(e, r);
            check_out(e, r, weight, bias, width);
        }
    free(weight);
    free(bias);
}

static mha_file *weights_of(const inner_family *f)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", f->folder);
    return case_file(path);
}

static void values_are_those_of_the_formula(void **state)
{
    (void)state;
    for (int m = 0; m < INNER_FAMILIES; m++) {
        mha_model *model = inner_open(NULL, m, MHA_DTYPE_DEFAULT);
        mha_file *file = weights_of(&inner_families[m]);
        const mha_model_info *info = mha_model_describe(model);
        for (int kind = 0; kind < INNER_INPUTS; kind++) {
            const mha_model_input in = inner_input(kind);
            inner_seen s = inner_run(model, &in, true), plain = inner_run(model, &in, false);
            assert_int_equal(s.calls, info->layers);
            inner_same_rows(&in, s.last, plain.last, s.width);
            for (int64_t n = 0; n < info->layers; n++) {
                const expectation e = {&inner_families[m], &in, &s.a[n], 2e-5};
                assert_true(s.a[n].heads == info->heads && s.a[n].kv_heads == info->kv_heads);
                check_layer(&e, file, s.width);
            }
            inner_seen_free(&s);
            inner_seen_free(&plain);
        }
        mha_file_free(file);
        mha_model_free(model);
    }
}

/* In a post-norm layer, on_activations must receive the layer's input before any normalization, and q must be the
 * projection of this input. */
static void queries_are_projections_of_the_input(void **state)
{
    (void)state;
    mha_model *model = inner_open(NULL, INNER_ENCODER, MHA_DTYPE_DEFAULT);
    mha_file *file = weights_of(&inner_families[INNER_ENCODER]);
    float *weight = case_floats(file, "encoder.layer.1.attention.self.query.weight");
    float *bias = case_floats(file, "encoder.layer.1.attention.self.query.bias");
    const mha_model_input in = inner_input(INNER_PADDED);
    inner_seen s = inner_run(model, &in, true);
    const expectation e = {&inner_families[INNER_ENCODER], &in, &s.a[1], 1e-5};
    for (int n = 0; n < 3; n++)
        inner_same_rows(&in, s.a[n].input, s.hidden[n], s.width);
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t i = 0; i < s.width; i++) {
            double q = (double)bias[i];
            for (int64_t k = 0; k < s.width; k++)
                q += (double)s.a[1].input[r * s.width + k] * (double)weight[i * s.width + k];
            if (inner_is_real(&in, r)) near(&e, "q", r, (double)s.a[1].q[r * s.a[1].stride + i], q);
        }
    inner_seen_free(&s);
    free(weight);
    free(bias);
    mha_file_free(file);
    mha_model_free(model);
}

/* With a 16-bit model, the activations must be rounded to its type. The context must equal the context computed from q,
 * k and v within rounding. */
static void activations_in_sixteen_bits(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_BF16, MHA_F16};
    for (int m = 0; m < INNER_FAMILIES; m++)
        for (int t = 0; t < 2; t++) {
            mha_model *model = inner_open(NULL, m, types[t]);
            mha_file *file = weights_of(&inner_families[m]);
            for (int kind = INNER_PADDED; kind < INNER_INPUTS; kind += INNER_FILLED - INNER_PADDED) {
                const mha_model_input in = inner_input(kind);
                inner_seen s = inner_run(model, &in, true), plain = inner_run(model, &in, false);
                inner_same_rows(&in, s.last, plain.last, s.width);
                for (int64_t n = 0; n < mha_model_describe(model)->layers; n++) {
                    const expectation e = {&inner_families[m], &in, &s.a[n], 0.02};
                    check_layer(&e, file, s.width);
                    for (int64_t i = 0; types[t] == MHA_BF16 && i < s.rows * s.a[n].stride; i++) {
                        uint32_t bits;
                        memcpy(&bits, &s.a[n].q[i], sizeof bits);
                        if (inner_is_real(&in, i / s.a[n].stride)) assert_int_equal(bits & 0xffff, 0);
                    }
                }
                inner_seen_free(&s);
                inner_seen_free(&plain);
            }
            mha_file_free(file);
            mha_model_free(model);
        }
}

/* ---- fills ---- */

/* Removing head 1 of layer 1 with a fill m must equal setting its gate to 0 and adding Wo m to the output bias. */
static void a_gate_of_0_and_a_fill_are_mean_ablation(void **state)
{
    (void)state;
    enum { LAYER = 1, HEAD = 1, D = 12, E = 48 };
    static const char *const weight_name = "encoder.layer.1.attention.output.dense.weight";
    static const char *const bias_name = "encoder.layer.1.attention.output.dense.bias";
    mha_file *file = weights_of(&inner_families[INNER_ENCODER]);
    float *weight = case_floats(file, weight_name), *bias = case_floats(file, bias_name);
    float off[LAYERS * B * H], mean[LAYERS * H * D] = {0};
    for (int n = 0; n < LAYERS * B * H; n++)
        off[n] = n / (B * H) != LAYER || n % H != HEAD;
    for (int d = 0; d < D; d++)
        mean[(LAYER * H + HEAD) * D + d] = (float)(d - 5) / 7;
    for (int i = 0; i < E; i++)
        for (int d = 0; d < D; d++) {
            float *w = &weight[i * E + HEAD * D + d];
            bias[i] += *w * mean[(LAYER * H + HEAD) * D + d];
            *w = 0;
        }
    const mha_named_tensor changed[] = {{weight_name, MHA_F32, 2, {E, E}, weight}, {bias_name, MHA_F32, 1, {E}, bias}};
    mha_model *by_hand =
        case_model(NULL, inner_families[INNER_ENCODER].folder,
                   &(mha_model_options){.size = sizeof(mha_model_options), .tensors = changed, .tensor_count = 2});
    mha_model *model = inner_open(NULL, INNER_ENCODER, MHA_DTYPE_DEFAULT);
    for (int kind = INNER_PLAIN; kind <= INNER_PACKED; kind++) {
        mha_model_input in = inner_input(kind);
        inner_seen want = inner_run(by_hand, &in, false);
        in.gates = off;
        in.fills = mean;
        inner_seen got = inner_run(model, &in, false);
        for (int64_t r = 0; r < got.rows; r++)
            if (inner_is_real(&in, r)) case_near("mean ablation", got.last + r * E, want.last + r * E, E, 2e-5);
        inner_seen_free(&want);
        inner_seen_free(&got);
    }
    mha_model_free(model);
    mha_model_free(by_hand);
    mha_file_free(file);
    free(weight);
    free(bias);
}

/* ---- pruned layers ---- */

/* Returns the config.json of the encoder, in which layer 1 keeps only its first `heads` heads. */
static char *pruned_config(int heads)
{
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    mha_model *whole = case_model(NULL, inner_families[INNER_ENCODER].folder, &o);
    const char *text = mha_model_config_json(whole);
    const size_t room = strlen(text) + 200;
    char *config = malloc(room);
    assert_non_null(config);
    size_t n = (size_t)snprintf(config, room, "{\"mha.heads\": [[0, 1, 2, 3], [0");
    for (int h = 1; h < heads; h++)
        n += (size_t)snprintf(config + n, room - n, ", %d", h);
    snprintf(config + n, room - n, "], [0, 1, 2, 3]], %s", strchr(text, '{') + 1);
    mha_model_free(whole);
    return config;
}

/* Returns the encoder in which layer 1 keeps only its first `heads` heads, made from tensors in memory. */
static mha_model *pruned(int heads, float *data)
{
    enum { D = 12, E = 48, TENSORS = 7 };
    static const char *const names[TENSORS] = {"self.query.weight",  "self.query.bias",   "self.key.weight",
                                               "self.key.bias",      "self.value.weight", "self.value.bias",
                                               "output.dense.weight"};
    static char full[TENSORS][96];
    static mha_named_tensor list[TENSORS];
    mha_file *file = weights_of(&inner_families[INNER_ENCODER]);
    for (int t = 0; t < TENSORS; t++) {
        const bool bias = t < TENSORS - 1 && t % 2, columns = t == TENSORS - 1;
        snprintf(full[t], sizeof full[t], "encoder.layer.1.attention.%s", names[t]);
        float *whole = case_floats(file, full[t]);
        list[t] = (mha_named_tensor){
            full[t], MHA_F32, bias ? 1 : 2, {columns ? E : heads * D, columns ? heads * D : E}, data};
        if (bias) list[t].shape[1] = 0;
        for (int i = 0; i < (columns ? E : heads * D); i++)
            for (int k = 0; k < (bias ? 1 : columns ? heads * D : E); k++)
                *data++ = whole[bias ? i : i * E + k];
        free(whole);
    }
    mha_file_free(file);
    char *config = pruned_config(heads);
    mha_model *model = case_model(
        NULL, inner_families[INNER_ENCODER].folder,
        &(mha_model_options){
            .size = sizeof(mha_model_options), .tensors = list, .tensor_count = TENSORS, .config_json = config});
    free(config);
    return model;
}

/* Gates and fills of a pruned layer must apply to its remaining heads. The reference is the complete layer with gates
 * of 0 for the removed heads. */
static void pruned_layers_have_only_remaining_heads(void **state)
{
    (void)state;
    enum { D = 12, E = 48, KEPT = 2 };
    float *data = malloc(4 * E * E * sizeof *data);
    mha_model *some = pruned(KEPT, data), *all = inner_open(NULL, INNER_ENCODER, MHA_DTYPE_DEFAULT);
    for (int kind = INNER_PLAIN; kind < INNER_INPUTS; kind++) {
        float off[LAYERS * B * H], own[LAYERS * H * D] = {0};
        mha_model_input in = inner_input(kind);
        inner_seen got = inner_run(some, &in, true);
        assert_true(got.a[1].heads == KEPT && got.a[1].kv_heads == KEPT && got.a[0].heads == H);
        for (int n = 0; n < LAYERS * B * H; n++)
            off[n] = n / (B * H) == 1 && n % H >= KEPT ? 0 : in.gates ? in.gates[n] : 1;
        for (int n = 0; in.fills && n < LAYERS * H * D; n++)
            own[n] = n / (H * D) == 1 && n % (H * D) >= KEPT * D ? 0 : in.fills[n];
        in.gates = off;
        if (in.fills) in.fills = own;
        inner_seen want = inner_run(all, &in, true);
        for (int64_t r = 0; r < got.rows; r++)
            if (inner_is_real(&in, r)) {
                case_near("context", got.a[1].context + r * KEPT * D, want.a[1].context + r * H * D, KEPT * D, 2e-5);
                case_near("q", got.a[1].q + r * got.a[1].stride, want.a[1].q + r * want.a[1].stride, KEPT * D, 2e-5);
                case_near("last", got.last + r * E, want.last + r * E, E, 5e-5);
            }
        inner_seen_free(&got);
        inner_seen_free(&want);
    }
    mha_model_free(some);
    mha_model_free(all);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_formula),
        cmocka_unit_test(queries_are_projections_of_the_input),
        cmocka_unit_test(activations_in_sixteen_bits),
        cmocka_unit_test(a_gate_of_0_and_a_fill_are_mean_ablation),
        cmocka_unit_test(pruned_layers_have_only_remaining_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

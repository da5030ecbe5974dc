/* test_head_weights.c - tests mha_head_weights in every layout of a checkpoint: the projections, applied to the input
 * of a layer, must give the values, queries, keys and outputs of the forward pass. */
#include "mha/importance.h"
#include "mha/weight_circuits.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Checkpoints with separate, fused, interleaved and transposed projections, with and without biases and shared keys. */
static const char *const folders[] = {
    "models/gpt2-tiny", "models/gemma2-tiny", "models/bert-mlm-tiny", "families/llama",     "families/qwen2",
    "families/qwen3",   "families2/phi3",     "families2/phi",        "families2/gpt-neox", "families2/bloom",
    "families2/cohere", "families2/opt",      "families2/modernbert", "families2/albert",   "families2/smollm3"};
enum { TOKENS = 5, FOLDERS = sizeof folders / sizeof *folders };

/* ---- projections of the forward pass ---- */

typedef struct seen {
    const mha_model *model;
    const mha_model_info *info;
    int compared; /* layers in which q and k were compared */
} seen;

/* Fails unless rows[t] of `width` elements at `stride` equals input[t] weight^T + bias. */
static void check_rows(const mha_model_activations *a, int64_t E, const float *weight, const float *bias,
                       const float *rows, int64_t stride)
{
    for (int64_t t = 0; t < a->rows; t++)
        for (int64_t d = 0; d < a->head_dim; d++) {
            double sum = (double)bias[d], size = 1;
            for (int64_t e = 0; e < E; e++) {
                sum += (double)a->input[t * E + e] * (double)weight[d * E + e];
                size += fabs((double)a->input[t * E + e] * (double)weight[d * E + e]);
            }
            if (!(fabs(sum - (double)rows[t * stride + d]) <= 2e-6 * size))
                fail_msg("layer %lld row %lld element %lld must be %g (got %g)", (long long)a->layer, (long long)t,
                         (long long)d, sum, (double)rows[t * stride + d]);
        }
}

/* The outputs of all heads and the bias must add up to the output of the layer. */
static void check_out(const seen *s, const mha_model_activations *a, float *weight, float *bias)
{
    const int64_t E = s->info->hidden, D = a->head_dim, wide = a->heads * D;
    double *sum = calloc((size_t)(a->rows * E), sizeof *sum);
    for (int64_t h = 0; h < a->heads; h++) {
        assert_int_equal(mha_head_weights(s->model, a->layer, h, MHA_HEAD_O, weight, bias, NULL), MHA_OK);
        for (int64_t n = 0; n < a->rows * D * E; n++)
            sum[n / (D * E) * E + n % E] +=
                (double)a->context[n / (D * E) * wide + h * D + n / E % D] * (double)weight[n % (D * E)];
    }
    for (int64_t n = 0; n < a->rows * E; n++)
        assert_true(fabs(sum[n] + (double)bias[n % E] - (double)a->out[n]) <= 1e-4 * (1 + fabs(sum[n])));
    free(sum);
}

static int check_layer(void *user, const mha_model_activations *a)
{
    seen *s = user;
    const int64_t E = s->info->hidden, D = a->head_dim;
    const mha_model_attention *attention = &s->info->attention_per_layer[a->layer];
    float *weight = malloc((size_t)(D * E) * sizeof *weight), *bias = malloc((size_t)E * sizeof *bias);
    for (int64_t h = 0; h < a->heads; h++) {
        const int64_t g = h * a->kv_heads / a->heads;
        assert_int_equal(mha_head_weights(s->model, a->layer, h, MHA_HEAD_V, weight, bias, NULL), MHA_OK);
        check_rows(a, E, weight, bias, a->v + g * D, a->stride);
        if (attention->rotary || attention->qk_norm) continue;
        assert_int_equal(mha_head_weights(s->model, a->layer, h, MHA_HEAD_Q, weight, bias, NULL), MHA_OK);
        check_rows(a, E, weight, bias, a->q + h * D, a->stride);
        assert_int_equal(mha_head_weights(s->model, a->layer, h, MHA_HEAD_K, weight, bias, NULL), MHA_OK);
        check_rows(a, E, weight, bias, a->k + g * D, a->stride);
        s->compared++;
    }
    check_out(s, a, weight, bias);
    free(weight);
    free(bias);
    return 0;
}

static void weights_give_the_activations(void **state)
{
    (void)state;
    const int32_t ids[TOKENS] = {3, 17, 4, 9, 4};
    int compared = 0;
    for (size_t f = 0; f < FOLDERS; f++) {
        mha_model *model = case_open(NULL, folders[f]);
        seen s = {.model = model, .info = mha_model_describe(model)};
        const mha_model_input in = {.size = sizeof in, .batch = 1, .length = TOKENS, .ids = ids};
        const mha_model_output out = {.size = sizeof out, .on_activations = check_layer, .user = &s};
        print_message("%s\n", folders[f]);
        assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
        compared += s.compared;
        mha_model_free(model);
    }
    assert_true(compared > 20);
}

/* ov_norm of every head must be the Frobenius norm of O^T V. */
static void norms_are_those_of_the_heads(void **state)
{
    (void)state;
    static const char *const layouts[] = {"models/gpt2-tiny", "families/llama", "families2/phi3", "families2/gpt-neox",
                                          "families2/bloom"};
    const mha_importance_options options = {.size = sizeof options, .by = MHA_IMPORTANCE_OV_NORM};
    for (size_t f = 0; f < sizeof layouts / sizeof *layouts; f++) {
        mha_model *model = case_open(NULL, layouts[f]);
        const mha_model_info *info = mha_model_describe(model);
        const int64_t E = info->hidden, D = info->head_dim;
        float *v = malloc((size_t)(2 * D * E) * sizeof *v), *o = v + D * E;
        mha_importance *norms;
        assert_int_equal(mha_importance_measure(model, NULL, &options, &norms, NULL), MHA_OK);
        for (int64_t h = 0; h < info->heads; h++) {
            double sum = 0;
            assert_int_equal(mha_head_weights(model, 1, h, MHA_HEAD_V, v, NULL, NULL), MHA_OK);
            assert_int_equal(mha_head_weights(model, 1, h, MHA_HEAD_O, o, NULL, NULL), MHA_OK);
            for (int64_t n = 0; n < E * E; n++) {
                double product = 0;
                for (int64_t d = 0; d < D; d++)
                    product += (double)o[d * E + n / E] * (double)v[d * E + n % E];
                sum += product * product;
            }
            assert_true(fabs(sqrt(sum) - mha_importance_value(norms, 1, h)) <= 1e-5 * sqrt(sum));
        }
        mha_importance_free(norms);
        free(v);
        mha_model_free(model);
    }
}

/* ---- refusals ---- */

static void check_refused(const mha_model *model, int64_t layer, int64_t head, int which, float *weight,
                          mha_status want, const char *message)
{
    mha_error err = {0};
    assert_int_equal(mha_head_weights(model, layer, head, (mha_head_projection)which, weight, NULL, &err), want);
    if (!strstr(err.message, message)) fail_msg("'%s' must contain '%s'", err.message, message);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    float weight[4096];
    const mha_model_options none = {.size = sizeof none, .no_weights = 1, .no_tokenizer = 1};
    mha_model *model = case_open(NULL, "models/gpt2-tiny"), *empty = case_model(NULL, "models/gpt2-tiny", &none),
              *latent = case_open(NULL, "families2/deepseek-v3");
    check_refused(NULL, 0, 0, MHA_HEAD_Q, weight, MHA_ERR_ARG, "model must have been opened with its weights");
    check_refused(empty, 0, 0, MHA_HEAD_Q, weight, MHA_ERR_ARG, "model must have been opened with its weights");
    check_refused(latent, 0, 0, MHA_HEAD_Q, weight, MHA_ERR_UNSUPPORTED, "must not have latent attention");
    check_refused(model, -1, 0, MHA_HEAD_Q, weight, MHA_ERR_ARG, "layer must be from 0 to 2 (got -1)");
    check_refused(model, 3, 0, MHA_HEAD_Q, weight, MHA_ERR_ARG, "layer must be from 0 to 2 (got 3)");
    check_refused(model, 0, 4, MHA_HEAD_Q, weight, MHA_ERR_ARG, "head must be from 0 to 3 in layer 0 (got 4)");
    check_refused(model, 0, 0, 4, weight, MHA_ERR_ARG, "which must be from 0 to 3 (got 4)");
    check_refused(model, 0, 0, MHA_HEAD_Q, NULL, MHA_ERR_ARG, "weight must not be NULL");
    mha_model_free(model);
    mha_model_free(empty);
    mha_model_free(latent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_give_the_activations),
        cmocka_unit_test(norms_are_those_of_the_heads),
        cmocka_unit_test(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

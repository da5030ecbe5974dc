/* test_model_differences.c - compares gradients of whole models with finite differences of a double-precision loss
 * (support/whole_ref.h), which reads the library's f32 weights but shares no code with the library. Compares some
 * elements of every tensor, every gate, and some elements of the embeddings.
 *
 * A central difference in double with a step of 1e-4 has an error of about 1e-8, so the remaining error is the
 * library's f32 rounding. The rounding error is proportional to the largest element of the tensor's gradient. TOLERANCE
 * is about four times the largest error measured. A relative gradient error of 0.001 must be detected. */
#include "mha/layer.h"
#include "mha/model_create.h"
#include "mha/model_grads.h"
#include "mha/train.h"
#include "support/check.h"
#include "support/reference/layer_ref.h"
#include "support/reference/whole_ref.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, L = 7, VOCAB = 23, SEEDS = 2, ENTRIES = 10 };
static const double STEP = 1e-4, TOLERANCE = 2e-5, FLOOR = 1e-7;

typedef struct family {
    const char *name, *config;
    whole_config numbers;
    bool holes; /* true: the mask has zeros between ones; false: only the end of a sequence is masked */
} family;

#define SIZES "\"hidden_size\": 12, \"intermediate_size\": 20, \"num_hidden_layers\": 2, \"vocab_size\": 23, "
static const family families[] = {
    {"gpt2",
     "{\"model_type\": \"gpt2\", \"n_embd\": 12, \"n_layer\": 2, \"n_head\": 3, \"n_positions\": 16, "
     "\"vocab_size\": 23, \"initializer_range\": 0.3}",
     {.eps = 1e-5},
     false},
    {"gpt2, one layer without feed-forward",
     "{\"model_type\": \"gpt2\", \"n_embd\": 12, \"n_layer\": 2, \"n_head\": 3, \"n_positions\": 16, "
     "\"vocab_size\": 23, \"initializer_range\": 0.3, \"tie_word_embeddings\": false, "
     "\"mha.feed_forward\": [false, true]}",
     {.eps = 1e-5},
     true},
    {"llama",
     "{\"model_type\": \"llama\", " SIZES "\"num_attention_heads\": 6, \"num_key_value_heads\": 2, "
     "\"head_dim\": 4, \"initializer_range\": 0.3}",
     {.eps = 1e-6, .theta = 10000},
     false},
    {"llama, tied, with biases",
     "{\"model_type\": \"llama\", " SIZES "\"num_attention_heads\": 3, \"tie_word_embeddings\": true, "
     "\"attention_bias\": true, \"mlp_bias\": true, \"initializer_range\": 0.3}",
     {.eps = 1e-6, .theta = 10000},
     true},
    {"qwen3",
     "{\"model_type\": \"qwen3\", " SIZES "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
     "\"head_dim\": 6, \"initializer_range\": 0.3}",
     {.eps = 1e-6, .theta = 10000},
     false},
    {"gemma2",
     "{\"model_type\": \"gemma2\", " SIZES "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
     "\"head_dim\": 6, \"query_pre_attn_scalar\": 5, \"sliding_window\": 3, \"attn_logit_softcapping\": 2, "
     "\"final_logit_softcapping\": 3, \"initializer_range\": 0.3}",
     {.eps = 1e-6, .theta = 10000, .attn_cap = 2, .logit_cap = 3, .query_scalar = 5, .window = 3},
     false},
    {"bert",
     "{\"model_type\": \"bert\", " SIZES "\"num_attention_heads\": 3, \"max_position_embeddings\": 16, "
     "\"type_vocab_size\": 2, \"initializer_range\": 0.3}",
     {.eps = 1e-12},
     true},
};
enum { FAMILIES = sizeof families / sizeof *families };

/* ---- test cases: a model, a batch and its gradients ---- */

typedef struct grad_case {
    mha_trainer *trainer; /* owner of the model, whose weights the test changes */
    mha_model_grads *grads;
    const mha_named_tensor *weights, *gradients;
    int64_t count, layers, heads, width;
    int32_t ids[B * L], types[B * L], labels[B * L];
    uint8_t mask[B * L];
    float *gates, *dgates, *dembeddings; /* [layers, B, H], [B, L, E] */
    double loss;
    whole_model reference;
    double *own_gates, *shift; /* [B, layers, H], [B, L, E] */
} grad_case;

/* Adds noise to all weights of the model, because many weights of a new model are 1 or 0. */
static void disturb(grad_case *c, uint64_t seed)
{
    mha_error err = {0};
    c->weights = mha_trainer_weights(c->trainer, &c->count);
    for (int64_t n = 0; n < c->count; n++) {
        const int64_t count = whole_elements(&c->weights[n]);
        float *noise = random_floats(seed, (uint64_t)n, count, 0.1, 0);
        for (int64_t i = 0; i < count; i++)
            ((float *)c->weights[n].data)[i] += noise[i];
        free(noise);
    }
    if (mha_trainer_refresh(c->trainer, &err) != MHA_OK) fail_msg("%s", err.message);
}

/* Fills the batch with two random sequences without token 0, the padding token, because its embedding has no
 * gradient. */
static void draw_batch(grad_case *c, uint64_t seed, bool holes)
{
    rng r = rng_make(seed, 1000);
    for (int n = 0; n < B * L; n++) {
        c->ids[n] = (int32_t)rng_range(&r, 1, VOCAB - 1);
        c->types[n] = n % L > 3;
        c->mask[n] = holes ? n != 2 && n != L + 4 : n < L + 5;
        c->labels[n] = c->mask[n] && n % 5 != 1 ? (int32_t)rng_range(&r, 0, VOCAB - 1) : MHA_IGNORE;
    }
}

static void draw_gates(grad_case *c, uint64_t seed)
{
    const int64_t gates = c->layers * B * c->heads, cells = B * L * c->width;
    c->gates = random_floats(seed, 2000, gates, 0.2, 1);
    c->dgates = calloc((size_t)gates, sizeof *c->dgates);
    c->dembeddings = calloc((size_t)cells, sizeof *c->dembeddings);
    c->own_gates = calloc((size_t)gates, sizeof *c->own_gates);
    c->shift = calloc((size_t)cells, sizeof *c->shift);
    for (int64_t n = 0; n < gates; n++) { /* own_gates is [B, layers, H] */
        const int64_t layer = n / (B * c->heads), b = n / c->heads % B, h = n % c->heads;
        c->own_gates[(b * c->layers + layer) * c->heads + h] = (double)c->gates[n];
    }
}

static void learn(grad_case *c, bool bert)
{
    mha_error err = {0};
    const mha_model_input input = {.size = sizeof input,
                                   .batch = B,
                                   .length = L,
                                   .ids = c->ids,
                                   .type_ids = bert ? c->types : NULL,
                                   .mask = c->mask,
                                   .gates = c->gates};
    const mha_model_loss_args args = {
        .size = sizeof args, .labels = c->labels, .dgates = c->dgates, .dembeddings = c->dembeddings};
    int64_t count = 0;
    mha_status status = mha_model_grads_create(mha_trainer_model(c->trainer), NULL, &c->grads, &err);
    if (status == MHA_OK) status = mha_model_grads_loss(c->grads, &input, &args, &c->loss, NULL, &err);
    if (status != MHA_OK) fail_msg("%s", err.message);
    c->gradients = mha_model_grads_list(c->grads, &count);
    assert_int_equal(count, c->count);
}

static grad_case make(const family *f, uint64_t seed)
{
    grad_case c = {0};
    mha_model *model = NULL;
    mha_error err = {0};
    const mha_model_create_options o = {.size = sizeof o, .seed = seed};
    if (mha_model_create(NULL, f->config, &o, &model, &err) != MHA_OK) fail_msg("%s: %s", f->name, err.message);
    if (mha_trainer_create(model, NULL, &c.trainer, &err) != MHA_OK) fail_msg("%s: %s", f->name, err.message);
    mha_model_free(model);
    const mha_model_info *info = mha_model_describe(mha_trainer_model(c.trainer));
    c.layers = info->layers, c.heads = info->heads, c.width = info->hidden;
    disturb(&c, seed);
    draw_batch(&c, seed, f->holes);
    draw_gates(&c, seed);
    learn(&c, !info->causal);
    c.reference = whole_open(mha_trainer_model(c.trainer), &f->numbers, c.weights, c.count);
    return c;
}

static void release(grad_case *c)
{
    whole_free(&c->reference);
    free(c->gates), free(c->dgates), free(c->dembeddings), free(c->own_gates), free(c->shift);
    mha_model_grads_free(c->grads);
    mha_trainer_free(c->trainer);
}

/* Returns the mean loss over all labels of the batch, computed by the double-precision reference. */
static double reference_loss(const grad_case *c)
{
    double sum = 0;
    int64_t counted = 0;
    for (int64_t b = 0; b < B; b++) {
        const whole_input in = {.length = L,
                                .ids = c->ids + b * L,
                                .types = c->types + b * L,
                                .mask = c->mask + b * L,
                                .labels = c->labels + b * L,
                                .gates = c->own_gates + b * c->layers * c->heads,
                                .shift = c->shift + b * L * c->width};
        sum += whole_loss(&c->reference, &in, &counted);
    }
    return sum / (double)counted;
}

static double difference(const grad_case *c, double *x)
{
    const double was = *x;
    *x = was + STEP;
    const double above = reference_loss(c);
    *x = was - STEP;
    const double below = reference_loss(c);
    *x = was;
    return (above - below) / (2 * STEP);
}

/* ---- comparison with finite differences ---- */

static double largest(const float *x, int64_t count)
{
    double max = 0;
    for (int64_t i = 0; i < count; i++)
        max = fmax(max, fabs((double)x[i]));
    return max;
}

/* Compares ENTRIES elements of a tensor's gradient, the largest among them, with finite differences. Returns the
 * largest error in units of the tolerance. */
static double compare(const grad_case *c, double *x, const float *gradient, int64_t count, uint64_t seed)
{
    const double bound = TOLERANCE * largest(gradient, count) + FLOOR;
    rng r = rng_make(seed, 3000);
    int64_t top = 0;
    double worst = 0;
    for (int64_t i = 0; i < count; i++)
        if (fabsf(gradient[i]) > fabsf(gradient[top])) top = i;
    for (int64_t n = 0; n < ENTRIES; n++) {
        const int64_t i = n == 0 ? top : count <= ENTRIES ? n % count : rng_range(&r, 0, count - 1);
        worst = fmax(worst, fabs(difference(c, x + i) - (double)gradient[i]) / bound);
    }
    return worst;
}

static void test_every_tensor(void **state)
{
    (void)state;
    for (int n = 0; n < FAMILIES * SEEDS; n++) {
        const family *f = &families[n / SEEDS];
        grad_case c = make(f, (uint64_t)(n % SEEDS + 1));
        double worst = 0;
        const double loss = reference_loss(&c);
        if (!(fabs(loss - c.loss) < 2e-6 * loss))
            fail_msg("%s: loss %.9g, expected %.9g as in double precision", f->name, c.loss, loss);
        for (int64_t t = 0; t < c.count; t++) {
            const int64_t count = whole_elements(&c.weights[t]);
            const double error = compare(&c, c.reference.value[t], c.gradients[t].data, count, (uint64_t)t);
            assert_string_equal(c.weights[t].name, c.gradients[t].name);
            if (!(error < 1))
                fail_msg("%s, seed %d: the error of the gradient of %s must be below its tolerance (got %.3g times the "
                         "tolerance)",
                         f->name, n % SEEDS + 1, c.weights[t].name, error);
            worst = fmax(worst, error);
        }
        print_message("%s: %lld tensors, largest error %.2f times the tolerance\n", f->name, (long long)c.count, worst);
        release(&c);
    }
}

static void test_gates_and_embeddings(void **state)
{
    (void)state;
    for (int n = 0; n < FAMILIES * SEEDS; n++) {
        const family *f = &families[n / SEEDS];
        grad_case c = make(f, (uint64_t)(n % SEEDS + 1));
        const int64_t gates = c.layers * B * c.heads;
        const double bound = TOLERANCE * largest(c.dgates, gates) + FLOOR;
        for (int64_t g = 0; g < gates; g++) {
            const int64_t layer = g / (B * c.heads), b = g / c.heads % B, h = g % c.heads;
            double *x = c.own_gates + (b * c.layers + layer) * c.heads + h;
            if (!(fabs(difference(&c, x) - (double)c.dgates[g]) < bound))
                fail_msg("%s: gradient of gate %lld of layer %lld must match the reference", f->name, (long long)h,
                         (long long)layer);
        }
        const double error = compare(&c, c.shift, c.dembeddings, B * L * c.width, 1);
        if (!(error < 1))
            fail_msg(
                "%s: the error of the embedding gradient must be below its tolerance (got %.3g times the tolerance)",
                f->name, error);
        release(&c);
    }
}

/* The comparison must detect a relative error of 0.001 in the gradient of any tensor. */
static void test_a_wrong_gradient_is_found(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        grad_case c = make(&families[f], 1);
        int64_t found = 0;
        for (int64_t t = 0; t < c.count; t++) {
            const int64_t count = whole_elements(&c.weights[t]);
            float *gradient = c.gradients[t].data;
            if (largest(gradient, count) < 1e-3) continue; /* skips key biases, which do not change the softmax */
            for (int64_t i = 0; i < count; i++)
                gradient[i] *= 1.001F;
            if (compare(&c, c.reference.value[t], gradient, count, (uint64_t)t) < 1)
                fail_msg("%s: an error in %s must be detected", families[f].name, c.weights[t].name);
            found++;
        }
        assert_true(found > c.count - 4);
        release(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_tensor),
        cmocka_unit_test(test_gates_and_embeddings),
        cmocka_unit_test(test_a_wrong_gradient_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

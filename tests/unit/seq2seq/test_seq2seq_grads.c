/* test_seq2seq_grads.c - tests gradients of encoder-decoders: finite differences of every parameter of both sides, and
 * bitwise identity. tests/golden/verify/test_verify_models.sh compares recorded gradients. */
#include "mha/model_grads.h"
#include "model/model_struct.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/seq2seq_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model whose weights the test may change, the recorded batch, and its labels. */
typedef struct trial {
    mha_model *model;
    mha_file *recorded, *weights;
    mha_named_tensor *tensor; /* [count] copies of the weights, which the model uses in place */
    int64_t count;
    seq2seq_pair pair;
    int32_t *labels;
} trial;

static void copy_weights(trial *t)
{
    t->count = mha_file_count(t->weights);
    t->tensor = calloc((size_t)t->count, sizeof *t->tensor);
    for (int64_t n = 0; n < t->count; n++) {
        const mha_tensor *from = mha_file_tensor(t->weights, n);
        t->tensor[n] = (mha_named_tensor){.name = from->name, .dtype = MHA_F32, .rank = from->rank};
        memcpy(t->tensor[n].shape, from->shape, (size_t)from->rank * sizeof *from->shape);
        t->tensor[n].data = case_floats(t->weights, from->name);
    }
}

static trial begin(int family)
{
    trial t = {0};
    char path[64];
    snprintf(path, sizeof path, "seq2seq/%s/model.safetensors", seq2seq_names[family]);
    t.weights = case_file(path);
    copy_weights(&t);
    snprintf(path, sizeof path, "seq2seq/%s", seq2seq_names[family]);
    t.model = case_model(
        NULL, path,
        &(mha_model_options){
            .size = sizeof(mha_model_options), .no_tokenizer = 1, .tensors = t.tensor, .tensor_count = t.count});
    t.recorded = seq2seq_recorded(family);
    t.labels = case_ints(t.recorded, "train/labels");
    return t;
}

static void end(trial *t)
{
    mha_model_free(t->model);
    for (int64_t n = 0; n < t->count; n++)
        free(t->tensor[n].data);
    free(t->tensor);
    free(t->labels);
    seq2seq_free(&t->pair);
    mha_file_free(t->recorded);
    mha_file_free(t->weights);
}

static mha_model_grads *create(const mha_model *model, int recompute, int pack)
{
    const mha_model_grads_options o = {.size = sizeof o, .recompute = recompute, .pack = pack};
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    if (mha_model_grads_create(model, &o, &grads, &err) != MHA_OK) fail_msg("%s", err.message);
    return grads;
}

static double loss_of(const trial *t, mha_model_grads *grads, int loss_only)
{
    const mha_model_loss_args args = {.size = sizeof args, .labels = t->labels, .loss_only = loss_only};
    double loss = 0;
    mha_error err = {0};
    if (mha_model_grads_loss(grads, &t->pair.input, &args, &loss, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    return loss;
}

/* ---- finite differences ---- */

/* Returns the element of the model's weights that belongs to an element of a gradient. */
static float *weight_of(const trial *t, const char *name)
{
    for (int64_t n = 0; n < t->count; n++)
        if (strcmp(t->tensor[n].name, name) == 0) return t->tensor[n].data;
    fail_msg("the checkpoint must have \"%s\"", name);
    return NULL;
}

static double loss_at(const trial *t, mha_model_grads *grads, float *weight, float value)
{
    const float was = *weight;
    *weight = value;
    assert_int_equal(mha__model_refresh(t->model, NULL), MHA_OK);
    const double loss = loss_of(t, grads, 1);
    *weight = was;
    return loss;
}

static double difference(const trial *t, mha_model_grads *grads, float *weight, float step)
{
    const double up = loss_at(t, grads, weight, *weight + step), down = loss_at(t, grads, weight, *weight - step);
    return (up - down) / (2 * (double)step);
}

static int64_t greatest(const float *x, int64_t count)
{
    int64_t best = 0;
    for (int64_t n = 1; n < count; n++)
        if (fabsf(x[n]) > fabsf(x[best])) best = n;
    return best;
}

/* Compares two elements of a gradient: the greatest, and one in the middle. */
static void check_tensor(const trial *t, mha_model_grads *grads, const mha_named_tensor *g)
{
    const int64_t count = case_elements(g);
    const float *got = g->data;
    const int64_t at[2] = {greatest(got, count), count / 2};
    const double largest = fabs((double)got[at[0]]);
    /* every parameter affects the loss, except the bias of keys: it adds the same number to all scores of a row */
    const bool affects = largest > 1e-7;
    assert_true(affects || strstr(g->name, "k_proj.bias"));
    /* The rounding error of a difference is inversely proportional to the step. */
    const float step = affects ? 0x1p-10f : 0x1p-6f;
    for (int n = 0; n < 2; n++) {
        float *weight = weight_of(t, g->name) + at[n];
        const double near = difference(t, grads, weight, step);
        /* Richardson extrapolation of two differences, with an error of fourth order in the step */
        const double want = (4 * near - difference(t, grads, weight, 2 * step)) / 3;
        if (!(fabs((double)got[at[n]] - want) < 0.02 * largest + 2e-4))
            fail_msg("%s[%d]: got %g, expected %g by finite differences", g->name, (int)at[n], (double)got[at[n]],
                     want);
    }
}

static bool has(const mha_named_tensor *list, int64_t count, const char *part)
{
    for (int64_t n = 0; n < count; n++)
        if (strstr(list[n].name, part)) return true;
    return false;
}

static void test_parameters_against_differences(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        trial t = begin(f);
        seq2seq_read(t.recorded, "train", &t.pair);
        mha_model_grads *grads = create(t.model, 0, 0), *probe = create(t.model, 0, 0);
        float *want = case_floats(t.recorded, "train/loss");
        int64_t count = 0;
        const bool t5 = f == SEQ2SEQ_T5 || f == SEQ2SEQ_T5_GATED;
        assert_true(fabs(loss_of(&t, grads, 0) - (double)*want) < 2e-5);
        const mha_named_tensor *list = mha_model_grads_list(grads, &count);
        for (int64_t n = 0; n < count; n++)
            check_tensor(&t, probe, &list[n]);
        assert_true(has(list, count, t5 ? "EncDecAttention.k" : "encoder_attn.k_proj"));
        assert_true(has(list, count, t5 ? "encoder.block.1.layer.0" : "encoder.layers.1.self_attn"));
        assert_true(has(list, count, "shared"));
        assert_false(has(list, count, "final_logits_bias")); /* a buffer, not a parameter */
        free(want);
        mha_model_grads_free(grads);
        mha_model_grads_free(probe);
        end(&t);
    }
}

/* ---- bitwise identity ---- */

static float *all_of(const mha_model_grads *grads, int64_t *total)
{
    int64_t count = 0;
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    *total = 0;
    for (int64_t n = 0; n < count; n++)
        *total += case_elements(&list[n]);
    float *all = malloc((size_t)*total * sizeof *all);
    *total = 0;
    for (int64_t n = 0; n < count; n++) {
        memcpy(all + *total, list[n].data, (size_t)case_elements(&list[n]) * sizeof *all);
        *total += case_elements(&list[n]);
    }
    return all;
}

/* Recomputation, packed weights and the content of masked tokens of the source must not change a bit. */
static void test_options_and_masked_tokens_change_no_bit(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        trial t = begin(f);
        seq2seq_read(t.recorded, "train", &t.pair);
        float *first = NULL;
        double first_loss = 0;
        for (int n = 0; n < 4; n++) {
            int64_t count = 0;
            mha_model_grads *grads = create(t.model, n & 1, n & 2);
            const double loss = loss_of(&t, grads, 0);
            float *all = all_of(grads, &count);
            if (!first) first = all, first_loss = loss;
            assert_true(loss == first_loss);
            assert_memory_equal(all, first, (size_t)count * sizeof *all);
            if (all != first) free(all);
            mha_model_grads_free(grads);
            for (int64_t i = 0; i < t.pair.source.batch * t.pair.source.length; i++)
                if (!t.pair.mask[i]) t.pair.source_ids[i] = 5 + n;
        }
        free(first);
        end(&t);
    }
}

/* Gradients of the attention layers only, or of no parameters, must be those of a complete backward pass. */
static void test_parts_of_the_gradients(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        trial t = begin(f);
        seq2seq_read(t.recorded, "train", &t.pair);
        mha_model_grads *all = create(t.model, 0, 0), *some = NULL;
        const double loss = loss_of(&t, all, 0);
        for (int n = 0; n < 2; n++) {
            const mha_model_grads_options o = {.size = sizeof o, .attention_only = n == 0, .no_parameters = n == 1};
            int64_t count = 0, every = 0;
            assert_int_equal(mha_model_grads_create(t.model, &o, &some, NULL), MHA_OK);
            assert_true(loss_of(&t, some, 0) == loss);
            const mha_named_tensor *list = mha_model_grads_list(some, &count),
                                   *whole = mha_model_grads_list(all, &every);
            assert_true(n ? count == 0 : count > 0 && count < every);
            for (int64_t i = 0, j = 0; i < count; i++) {
                while (strcmp(whole[j].name, list[i].name) != 0)
                    assert_true(++j < every);
                assert_memory_equal(list[i].data, whole[j].data, (size_t)case_elements(&list[i]) * sizeof(float));
            }
            mha_model_grads_free(some);
        }
        mha_model_grads_free(all);
        end(&t);
    }
}

/* If memory is exhausted at any allocation, the calls must return an error and free everything. */
static void test_failed_allocations(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        seq2seq_pair pair;
        counting c = {.budget = -1};
        const mha_allocator allocator = counting_allocator(&c);
        const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = allocator};
        mha_ctx *ctx = NULL;
        assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
        mha_model *model = seq2seq_open(ctx, f);
        mha_file *file = seq2seq_recorded(f);
        int32_t *labels = case_ints(file, "train/labels");
        seq2seq_read(file, "train", &pair);
        const mha_model_loss_args args = {.size = sizeof args, .labels = labels};
        const long live = c.live;
        mha_status status = MHA_ERR_MEMORY;
        for (long n = 0; status != MHA_OK; n++) {
            mha_model_grads *grads = NULL;
            double loss = 0;
            c.budget = c.calls + n;
            status = mha_model_grads_create(model, NULL, &grads, NULL);
            if (status == MHA_OK) status = mha_model_grads_loss(grads, &pair.input, &args, &loss, NULL, NULL);
            c.budget = -1;
            assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
            mha_model_grads_free(grads);
            assert_int_equal(c.live, live);
        }
        free(labels);
        seq2seq_free(&pair);
        mha_file_free(file);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_against_differences),
        cmocka_unit_test(test_options_and_masked_tokens_change_no_bit),
        cmocka_unit_test(test_parts_of_the_gradients),
        cmocka_unit_test(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

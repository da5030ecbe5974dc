/* test_train_moments.c - tests AdamW with moments in bf16: the update, bitwise identity for threads, ISAs and resumed
 * runs, states of another type, and memory. test_train_ranks.c tests several processes. */
#include "layer/adamw.h"
#include "math/half.h"
#include "mha/io.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include "support/reference/layer_ref.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT2 "models/gpt2-tiny"

enum { B = 2, L = 10 };

static const mha_train_options narrow = {
    .size = sizeof narrow, .rate = 1e-2, .decay = 0.1, .clip = 1, .warmup = 2, .seed = 5, .moments = MHA_BF16};

/* ---- the update ---- */

enum { ELEMENTS = 40000 }; /* more elements than two blocks of the update */

static mha__adamw job_of(int64_t count, float *weight, float *gradient, uint16_t *moments, int64_t step)
{
    return (mha__adamw){.count = count,
                        .weight = weight,
                        .gradient = gradient,
                        .mean = moments,
                        .square = moments + count,
                        .moments = MHA_BF16,
                        .seed = (uint64_t)step * 77,
                        .first = 5,
                        .scale = 0.25,
                        .rate = 0.1,
                        .beta1 = 0.9,
                        .beta2 = 0.99,
                        .eps = 1e-3,
                        .decay = 0.5,
                        .step = step};
}

/* Each rounding changes a moment by at most 2^-7 of its value, and a step of rate 0.1 by at most 1.5 times as much. */
static void test_update_against_doubles(void **state)
{
    (void)state;
    float *gradient = random_floats(3, 1, ELEMENTS, 1, 0), *kept = random_floats(3, 1, ELEMENTS, 1, 0);
    float *weight = random_floats(3, 2, ELEMENTS, 1, 0);
    uint16_t *moments = calloc(2 * ELEMENTS, sizeof *moments);
    double *w = malloc(ELEMENTS * sizeof *w), *m = calloc(ELEMENTS, sizeof *m), *v = calloc(ELEMENTS, sizeof *v);
    for (int i = 0; i < ELEMENTS; i++)
        w[i] = (double)weight[i];
    for (int step = 1; step <= 3; step++) {
        const mha__adamw job = job_of(ELEMENTS, weight, gradient, moments, step);
        memcpy(gradient, kept, ELEMENTS * sizeof *gradient);
        mha__adamw_run(NULL, &job);
        for (int i = 0; i < ELEMENTS; i++) {
            const double g = 0.25 * (double)kept[i];
            w[i] -= 0.1 * 0.5 * w[i];
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.99 * v[i] + 0.01 * g * g;
            w[i] -= 0.1 * (m[i] / (1 - pow(0.9, step))) / (sqrt(v[i] / (1 - pow(0.99, step))) + 1e-3);
            assert_true(fabs(w[i] - (double)weight[i]) < 2e-6 + (step - 1) * 0.15 * 0x1p-7);
            assert_true(fabs(m[i] - (double)mha__bf16_to_f32(moments[i])) <= step * 0x1p-7 * fabs(m[i]));
            assert_true(fabs(v[i] - (double)mha__bf16_to_f32(moments[ELEMENTS + i])) <= step * 0x1p-7 * v[i]);
            assert_true(gradient[i] == 0);
        }
    }
    free(gradient), free(kept), free(weight), free(moments), free(w), free(m), free(v);
}

/* Without gradients, moments must decay by their factor, though a step of the second moment is less than half of the
 * distance of two bf16 numbers. */
static void test_small_changes_are_not_lost(void **state)
{
    (void)state;
    enum { COUNT = 2000, STEPS = 1000 };
    float *weight = calloc(2 * COUNT, sizeof *weight);
    uint16_t *moments = malloc(2 * COUNT * sizeof *moments);
    const uint16_t start = mha__f32_to_bf16(0.75F);
    for (int i = 0; i < 2 * COUNT; i++)
        moments[i] = start;
    for (int step = 1; step <= STEPS; step++) {
        mha__adamw job = job_of(COUNT, weight, weight + COUNT, moments, step);
        job.beta1 = job.beta2 = 0.999;
        mha__adamw_run(NULL, &job);
    }
    for (int kind = 0; kind < 2; kind++) {
        double sum = 0;
        for (int i = 0; i < COUNT; i++)
            sum += (double)mha__bf16_to_f32(moments[kind * COUNT + i]);
        assert_true(fabs(sum / COUNT - 0.75 * pow(0.999, STEPS)) < 0.01 * 0.75 * pow(0.999, STEPS));
    }
    free(weight), free(moments);
}

/* An update of part of a tensor, as in one of several processes, must use the random bits of the whole. */
static void test_parts_are_those_of_the_whole(void **state)
{
    (void)state;
    float *gradient = random_floats(3, 1, ELEMENTS, 1, 0), *again = random_floats(3, 1, ELEMENTS, 1, 0);
    float *weight = calloc(2 * ELEMENTS, sizeof *weight);
    uint16_t *whole = calloc(2 * ELEMENTS, sizeof *whole), *part = calloc(2 * ELEMENTS, sizeof *part);
    const mha__adamw all = job_of(ELEMENTS, weight, gradient, whole, 1);
    mha__adamw rest = job_of(ELEMENTS - MHA__SQUARES_BLOCK, weight + ELEMENTS, again + MHA__SQUARES_BLOCK, part, 1);
    rest.first += MHA__SQUARES_BLOCK;
    mha__adamw_run(NULL, &all);
    mha__adamw_run(NULL, &rest);
    assert_memory_equal(whole + MHA__SQUARES_BLOCK, part, (size_t)rest.count * sizeof *part);
    assert_memory_equal(whole + ELEMENTS + MHA__SQUARES_BLOCK, part + rest.count, (size_t)rest.count * sizeof *part);
    free(gradient), free(again), free(weight), free(whole), free(part);
}

/* ---- training runs ---- */

static void test_identity(void **state)
{
    (void)state;
    static const char *const folders[] = {GPT2, "families/llama-f32", "models/bert-mlm-tiny"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        train_check_threads(folders[f], &narrow, B, L);
        train_check_resume(folders[f], &narrow, B, L);
    }
    mha_train_options gated = narrow;
    gated.gates = (mha_train_gates){.penalty = MHA_GATES_L0, .first = 1, .end = 2};
    train_check_resume(GPT2, &gated, B, L);
}

static bool is_alike(const mha_trainer *a, const mha_trainer *b)
{
    for (int64_t n = 0; n < a->count; n++)
        if (memcmp(a->list[n].data, b->list[n].data, (size_t)a->parameter[n].count * sizeof(float)) != 0) return false;
    return true;
}

/* The moments must have an effect, depend on the seed, and lead to nearly the same loss. */
static void test_effect(void **state)
{
    (void)state;
    mha_train_options wide = narrow, other = narrow;
    wide.moments = MHA_F32;
    other.seed = 6;
    mha_trainer *t[] = {train_case(NULL, GPT2, &narrow), train_case(NULL, GPT2, &wide), train_case(NULL, GPT2, &other)};
    double loss[3] = {0};
    for (int n = 0; n < 3; n++)
        for (int step = 0; step < 60; step++)
            loss[n] = train_on(t[n], 4, L).loss;
    assert_false(is_alike(t[0], t[1]));
    assert_false(is_alike(t[0], t[2]));
    assert_true(fabs(loss[0] - loss[1]) < 0.02 * loss[1] && fabs(loss[2] - loss[1]) < 0.02 * loss[1]);
    for (int n = 0; n < 3; n++)
        mha_trainer_free(t[n]);
}

/* ---- checkpoints ---- */

static void expect_stored(const char *folder, mha_dtype type)
{
    mha_file *file = NULL;
    assert_int_equal(mha_file_open(NULL, files_path(folder, "training.safetensors"), NULL, &file, NULL), MHA_OK);
    for (int64_t n = 0; n < mha_file_count(file); n++)
        assert_int_equal(mha_file_tensor(file, n)->dtype, type);
    mha_file_free(file);
}

/* A checkpoint must store the moments in their type, and must be rejected for the other type. */
static void test_type_of_a_state(void **state)
{
    (void)state;
    const mha_dtype types[] = {MHA_F32, MHA_BF16};
    for (int n = 0; n < 2; n++) {
        const char *folder = files_folder();
        char wanted[512];
        mha_error err = {0};
        mha_train_options o = narrow;
        o.moments = types[n];
        mha_trainer *t = train_case(NULL, GPT2, &o), *out = NULL;
        train_on(t, B, L);
        assert_int_equal(mha_trainer_save(t, folder, NULL, &err), MHA_OK);
        expect_stored(folder, types[n]);
        o.moments = types[!n];
        assert_int_equal(mha_trainer_resume(NULL, folder, &o, &out, &err), MHA_ERR_ARG);
        assert_null(out);
        snprintf(wanted, sizeof wanted,
                 "%s/training.safetensors: the type of the tensor \"%s\" must be %s, as set by moments (got %s)",
                 folder, t->state[0].name, mha_dtype_name(types[!n]), mha_dtype_name(types[n]));
        assert_string_equal(err.message, wanted);
        mha_trainer_free(t);
        files_remove(folder);
    }
}

static void test_impossible_moments(void **state)
{
    (void)state;
    const mha_trainer_save_options over = {.size = sizeof over, .overwrite = 1};
    static const uint16_t wrong[][2] = {{0x7FC0, 0}, {0xFF80, 0}, {0, 0xBF80}, {0, 0x7FC0}, {0, 0x7F80}};
    const char *folder = files_folder();
    mha_error err = {0};
    mha_trainer *t = train_case(NULL, GPT2, &narrow), *out = NULL;
    train_on(t, B, L);
    const mha__parameter *p = &t->parameter[t->count - 1];
    uint16_t *mean = (uint16_t *)p->mean + p->count - 1, *square = (uint16_t *)p->square + p->count - 1;
    for (int n = 0; n < 5; n++) {
        *mean = wrong[n][0], *square = wrong[n][1];
        if (mha_trainer_save(t, folder, &over, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(mha_trainer_resume(NULL, folder, &narrow, &out, &err), MHA_ERR_FORMAT);
        assert_non_null(strstr(err.message, t->state[2 * t->count - (n < 2 ? 2 : 1)].name));
        assert_null(out);
    }
    mha_trainer_free(t);
    files_remove(folder);
}

static void test_refused_types(void **state)
{
    (void)state;
    const mha_dtype wrong[] = {MHA_F16, MHA_F64, (mha_dtype)99};
    mha_model *model = case_open(NULL, GPT2);
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        mha_train_options o = narrow;
        mha_trainer *t = NULL;
        mha_error err = {0};
        o.moments = wrong[n];
        assert_int_equal(mha_trainer_create(model, &o, &t, &err), MHA_ERR_ARG);
        assert_non_null(strstr(err.message, "mha_train_options: moments must be one of f32, bf16 (got "));
    }
    mha_model_free(model);
}

/* ---- memory ---- */

/* An allocator that sums the bytes of all allocations. */
static void *sum_alloc(void *user, size_t bytes, size_t align)
{
    void *memory = NULL;
    *(size_t *)user += bytes;
    return posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes) == 0 ? memory : NULL;
}

static void sum_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static size_t allocated(mha_dtype moments, int64_t *parameters)
{
    size_t bytes = 0;
    mha_ctx *ctx = NULL;
    const mha_ctx_options c = {.size = sizeof c, .threads = 1, .allocator = {sum_alloc, sum_free, &bytes}};
    mha_train_options o = narrow;
    o.moments = moments;
    assert_int_equal(mha_ctx_create(&c, &ctx, NULL), MHA_OK);
    mha_trainer *t = train_case(ctx, GPT2, &o);
    *parameters = t->elements;
    mha_trainer_free(t);
    mha_ctx_free(ctx);
    return bytes;
}

/* Moments in bf16 must take 4 bytes per parameter less, apart from the alignment of the arrays. */
static void test_memory(void **state)
{
    (void)state;
    int64_t parameters = 0;
    const size_t wide = allocated(MHA_F32, &parameters), half = allocated(MHA_BF16, &parameters);
    const double saved = (double)wide - (double)half, expected = 4 * (double)parameters;
    assert_true(fabs(saved - expected) < 0.1 * expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_update_against_doubles),
        cmocka_unit_test(test_small_changes_are_not_lost),
        cmocka_unit_test(test_parts_are_those_of_the_whole),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_effect),
        cmocka_unit_test(test_type_of_a_state),
        cmocka_unit_test(test_impossible_moments),
        cmocka_unit_test(test_refused_types),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

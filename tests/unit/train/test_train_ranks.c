/* test_train_ranks.c - in data-parallel training, weights, losses and checkpoints must be bitwise identical for any
 * number of ranks, which are threads in this test. tests/mpi tests ranks that are processes. */
#include "layer/adamw.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/thread_ranks.h"
#include "support/model/train_case.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT2 "models/gpt2-tiny"

enum { BATCHES = 8, B = 2, L = 10, STEPS = 3 };

/* The settings of a training run, and its results on each rank. */
typedef struct run {
    const char *folder;
    mha_train_options options;
    const char *teacher; /* folder of the teacher, or NULL */
    const char *from;    /* checkpoint from which the run resumes, or NULL */
    const char *to;      /* folder to which the run is saved, or NULL */
    const mha_trainer_save_options *how;
    int steps;
    int bad_rank;   /* rank whose first step has labels outside the vocabulary; -1 = none */
    int64_t bucket; /* size of a bucket [bytes]; 0 = the default */
    bool may_fail;
    struct {
        mha_trainer *trainer;
        mha_ctx *ctx;
        mha_model *teacher;
        mha_train_report report;
        mha_status status;
        mha_error error;
    } of[THREAD_RANKS];
} run;

static mha_status take_step(run *r, int rank, int64_t step, int32_t wrong)
{
    int32_t ids[BATCHES][B * L], labels[BATCHES][B * L];
    mha_model_input input[BATCHES];
    mha_train_batch batches[BATCHES];
    mha_trainer *t = r->of[rank].trainer;
    const bool causal = mha_model_describe(mha_trainer_model(t))->causal != 0;
    for (int n = 0; n < BATCHES; n++) {
        train_texts((step - 1) * BATCHES + n + 1, B, L, ids[n]);
        for (int i = 0; i < B * L; i++)
            labels[n][i] = wrong ? wrong : causal || i % 3 == 0 ? ids[n][i] : MHA_IGNORE;
        input[n] = (mha_model_input){.size = sizeof *input, .batch = B, .length = L, .ids = ids[n]};
        batches[n] = (mha_train_batch){.input = &input[n], .labels = labels[n]};
    }
    return mha_trainer_step(t, batches, BATCHES, &r->of[rank].report, &r->of[rank].error);
}

static mha_status open_trainer(run *r, int rank, const mha_train_ranks *ranks)
{
    mha_model *model = NULL;
    mha_train_options o = r->options;
    const mha_ctx_options c = {.size = sizeof c, .threads = 1};
    const mha_model_options m = {.size = sizeof m, .no_tokenizer = 1};
    char path[512];
    mha_error *err = &r->of[rank].error;
    o.ranks = ranks;
    mha_status status = mha_ctx_create(&c, &r->of[rank].ctx, err);
    snprintf(path, sizeof path, "%s/%s", MHA_TEST_DATA, r->teacher ? r->teacher : "");
    if (status == MHA_OK && r->teacher) status = mha_model_open(r->of[rank].ctx, path, &m, &r->of[rank].teacher, err);
    o.teacher = r->of[rank].teacher;
    if (status == MHA_OK && r->from) return mha_trainer_resume(r->of[rank].ctx, r->from, &o, &r->of[rank].trainer, err);
    snprintf(path, sizeof path, "%s/%s", MHA_TEST_DATA, r->folder);
    if (status == MHA_OK) status = mha_model_open(r->of[rank].ctx, path, &m, &model, err);
    if (status == MHA_OK) status = mha_trainer_create(model, &o, &r->of[rank].trainer, err);
    mha_model_free(model);
    return status;
}

static void run_rank(const mha_train_ranks *ranks, void *user)
{
    run *r = user;
    const int rank = ranks ? ranks->rank : 0;
    mha_status status = open_trainer(r, rank, ranks);
    if (status == MHA_OK && r->bucket) r->of[rank].trainer->bucket = r->bucket;
    for (int n = 0; n < r->steps && status == MHA_OK; n++) {
        const int64_t step = mha_trainer_step_count(r->of[rank].trainer) + 1;
        if (step == 1 && r->bad_rank >= 0) {
            r->of[rank].status = take_step(r, rank, step, rank == r->bad_rank ? 1 << 20 : 0);
            if (r->of[rank].status == MHA_OK) return;
        }
        status = take_step(r, rank, step, 0);
    }
    if (status == MHA_OK && r->to) status = mha_trainer_save(r->of[rank].trainer, r->to, r->how, &r->of[rank].error);
    if (status != MHA_OK) r->of[rank].status = status;
}

static void run_on(int ranks, run *r)
{
    if (ranks == 0)
        run_rank(NULL, r);
    else
        thread_ranks_run(ranks, run_rank, r);
    for (int n = 0; n < (ranks ? ranks : 1); n++)
        if (!r->may_fail && r->of[n].status != MHA_OK) fail_msg("rank %d: %s", n, r->of[n].error.message);
}

static void end(run *r)
{
    for (int n = 0; n < THREAD_RANKS; n++) {
        mha_trainer_free(r->of[n].trainer);
        mha_model_free(r->of[n].teacher);
        mha_ctx_free(r->of[n].ctx);
    }
}

static run run_of(const char *folder, int64_t workers)
{
    return (run){.folder = folder,
                 .options = {.size = sizeof(mha_train_options),
                             .rate = 1e-2,
                             .decay = 0.1,
                             .clip = 0.1,
                             .warmup = 2,
                             .steps = 9,
                             .workers = workers},
                 .steps = STEPS,
                 .bad_rank = -1};
}

static void expect_alike(const run *one, const run *shared, int ranks)
{
    for (int n = 0; n < ranks; n++) {
        train_expect_alike(one->of[0].trainer, shared->of[n].trainer);
        assert_memory_equal(&one->of[0].report.loss, &shared->of[n].report.loss, sizeof(double));
        assert_memory_equal(&one->of[0].report.norm, &shared->of[n].report.norm, sizeof(double));
        assert_int_equal(one->of[0].report.labels, shared->of[n].report.labels);
    }
}

/* ---- bitwise identity for any number of ranks ---- */

static void check(run wanted)
{
    run one = wanted;
    run_on(0, &one);
    for (int ranks = 1; ranks <= wanted.options.workers; ranks *= 2) {
        run shared = wanted;
        run_on(ranks, &shared);
        expect_alike(&one, &shared, ranks);
        end(&shared);
    }
    end(&one);
}

static void test_any_number_of_ranks(void **state)
{
    (void)state;
    static const char *const folders[] = {GPT2, "families/llama-f32", "models/bert-mlm-tiny", "models/gemma2-tiny"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        check(run_of(folders[f], f == 0 ? 8 : 4));
}

static void test_moments_in_bf16(void **state)
{
    (void)state;
    run r = run_of(GPT2, 8);
    r.options.moments = MHA_BF16;
    check(r);
}

static void test_dropout_gates_and_teacher(void **state)
{
    (void)state;
    run r = run_of(GPT2, 4);
    r.options.dropout = (mha_train_dropout){0.1, 0.1, 0.1};
    r.options.gates = (mha_train_gates){.penalty = MHA_GATES_L0, .start = 1, .end = 7, .heads = 4};
    check(r);
    r.options.gates = (mha_train_gates){.penalty = MHA_GATES_L1, .only = 1};
    check(r);
    r = run_of(GPT2, 4);
    r.teacher = GPT2;
    r.options.gates = (mha_train_gates){.penalty = MHA_GATES_L0, .first = 1, .end = 2};
    check(r);
}

/* ---- order of the additions ---- */

static double distance(const mha_trainer *a, const mha_trainer *b)
{
    int64_t count;
    float *x = train_weights(a, &count), *y = train_weights(b, &count);
    double max = 0;
    for (int64_t i = 0; i < count; i++)
        max = fmax(max, fabs((double)x[i] - (double)y[i]));
    free(x), free(y);
    return max;
}

static void test_order_of_additions(void **state)
{
    (void)state;
    run one = run_of(GPT2, 1), eight = run_of(GPT2, 8), fast = run_of(GPT2, 8), four = run_of(GPT2, 8);
    fast.options.reduce = four.options.reduce = MHA_REDUCE_FAST;
    run_on(0, &one);
    run_on(0, &eight);
    run_on(0, &fast);
    run_on(4, &four);
    train_expect_alike(one.of[0].trainer, fast.of[0].trainer); /* with one process, MHA_REDUCE_FAST must add in order */
    assert_true(distance(one.of[0].trainer, eight.of[0].trainer) > 0);
    assert_true(distance(one.of[0].trainer, eight.of[0].trainer) < 1e-3);
    assert_true(distance(one.of[0].trainer, four.of[0].trainer) < 1e-3);
    for (int n = 1; n < 4; n++)
        train_expect_alike(four.of[0].trainer, four.of[n].trainer);
    end(&one), end(&eight), end(&fast), end(&four);
}

/* ---- division of the optimizer state ---- */

static void test_moments_are_divided(void **state)
{
    (void)state;
    run r = run_of(GPT2, 8);
    run_on(8, &r);
    const int64_t elements = r.of[0].trainer->elements;
    int64_t all = 0;
    for (int n = 0; n < 8; n++) {
        int64_t own = 0;
        for (int64_t p = 0; p < r.of[n].trainer->count; p++)
            own += r.of[n].trainer->parameter[p].own_count;
        assert_true(own <= elements / 8 + MHA__SQUARES_BLOCK);
        all += own;
    }
    assert_int_equal(all, elements);
    end(&r);
}

static void test_resume_with_other_ranks(void **state)
{
    (void)state;
    const int before[] = {4, 0, 2}, after[] = {2, 4, 0};
    /* the options of an older caller, whose struct does not have the field model_only */
    const mha_trainer_save_options older = {.size = sizeof older.size, .model_only = 1};
    for (size_t n = 0; n < sizeof before / sizeof *before; n++) {
        run whole = run_of(GPT2, 4), first = run_of(GPT2, 4), second = run_of(GPT2, 4);
        first.to = second.from = files_folder();
        first.how = &older;
        first.options.gates = (mha_train_gates){.penalty = MHA_GATES_L0, .start = 1, .end = 4};
        whole.options.gates = second.options.gates = first.options.gates;
        whole.options.moments = second.options.moments = first.options.moments = n ? MHA_BF16 : MHA_F32;
        whole.steps = 2 * STEPS;
        run_on(0, &whole);
        run_on(before[n], &first);
        run_on(after[n], &second);
        expect_alike(&whole, &second, after[n] ? after[n] : 1);
        end(&whole), end(&first), end(&second);
        files_remove(first.to);
    }
}

/* ---- failures of ranks ---- */

/* If one rank fails, all ranks must return its error, and the next step must succeed. With a bucket of one byte, other
 * ranks begin a sum in every layer before they are notified of the failure. */
static void test_failure_of_one_rank(void **state)
{
    (void)state;
    for (int reduce = MHA_REDUCE_TREE; reduce <= MHA_REDUCE_FAST; reduce++) {
        run good = run_of(GPT2, 4), bad = run_of(GPT2, 4);
        good.options.reduce = bad.options.reduce = (mha_train_reduce)reduce;
        bad.bad_rank = 2;
        good.bucket = bad.bucket = 1;
        bad.may_fail = true;
        run_on(4, &good);
        run_on(4, &bad);
        for (int n = 0; n < 4; n++) {
            assert_int_equal(bad.of[n].status, MHA_ERR_ARG);
            assert_non_null(strstr(bad.of[n].error.message, "rank 2: "));
            assert_non_null(strstr(bad.of[n].error.message, "1048576"));
        }
        expect_alike(&good, &bad, 4); /* the failed step must have changed nothing, so that it can be repeated */
        end(&good), end(&bad);
    }
}

static void test_failed_save(void **state)
{
    (void)state;
    run r = run_of(GPT2, 2);
    r.to = "/dev/null/absent";
    r.may_fail = true;
    run_on(2, &r);
    assert_int_equal(r.of[0].status, MHA_ERR_IO);
    assert_int_equal(r.of[1].status, MHA_ERR_IO);
    assert_string_equal(r.of[0].error.message, r.of[1].error.message);
    end(&r);
}

static mha_status fail_without_a_message(void *user, mha_error *err)
{
    (void)user, (void)err;
    return MHA_ERR_IO;
}

static void run_rank_that_cannot_finish(const mha_train_ranks *ranks, void *user)
{
    static mha_train_ranks own;
    own = *ranks;
    own.finish = fail_without_a_message;
    run_rank(&own, user);
}

/* If a sum of gradients fails, the step must fail with the status of the callback, even if the callback sets no
 * message. */
static void test_failed_sum(void **state)
{
    (void)state;
    run r = run_of(GPT2, 8);
    r.options.reduce = MHA_REDUCE_FAST;
    thread_ranks_run(1, run_rank_that_cannot_finish, &r);
    assert_int_equal(r.of[0].status, MHA_ERR_IO);
    assert_int_equal(mha_trainer_step_count(r.of[0].trainer), 0);
    end(&r);
}

static void expect_refused(mha_train_options o, const char *message)
{
    mha_trainer *t = NULL;
    mha_error err = {0};
    mha_model *model = case_open(NULL, GPT2);
    assert_int_equal(mha_trainer_create(model, &o, &t, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, message);
    mha_model_free(model);
}

/* A mha_train_ranks struct from a newer header must be copied if its additional fields are zero, and rejected
 * otherwise. */
static void use_newer_struct(const mha_train_ranks *ranks, void *user)
{
    run *r = user;
    struct {
        mha_train_ranks known;
        int64_t later;
    } newer = {.known = *ranks};
    newer.known.size = sizeof newer;
    mha_train_options o = r->options;
    mha_trainer *t = NULL;
    mha_error err = {0};
    o.ranks = &newer.known;
    o.workers = 2;
    mha_model *model = case_open(NULL, GPT2);
    newer.known.ranks = 4;
    assert_int_equal(mha_trainer_create(model, &o, &t, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_train_options: workers must be a multiple of the 4 ranks (got 2)");
    newer.known.ranks = 1;
    newer.later = 1;
    assert_int_equal(mha_trainer_create(model, &o, &t, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "mha_train_ranks.size must be at most "));
    newer.later = 0;
    assert_int_equal(mha_trainer_create(model, &o, &t, &err), MHA_OK);
    mha_trainer_free(t);
    newer.known.size = 4;
    assert_int_equal(mha_trainer_create(model, &o, &t, &err), MHA_ERR_ARG);
    mha_model_free(model);
}

static void test_newer_struct(void **state)
{
    (void)state;
    run r = run_of(GPT2, 8);
    thread_ranks_run(1, use_newer_struct, &r);
    end(&r);
}

static void test_refused_options(void **state)
{
    (void)state;
    mha_train_ranks three = {.size = sizeof three, .ranks = 3};
    mha_train_options o = {.size = sizeof o, .workers = 3};
    expect_refused(o, "mha_train_options: workers must be a power of two up to 1048576 (got 3)");
    o.workers = -2;
    expect_refused(o, "mha_train_options: workers must be a power of two up to 1048576 (got -2)");
    o = (mha_train_options){.size = sizeof o, .reduce = (mha_train_reduce)2};
    expect_refused(o, "mha_train_options: reduce must be a value of mha_train_reduce (got 2)");
    o = (mha_train_options){.size = sizeof o, .ranks = &three, .workers = 4};
    expect_refused(o, "mha_train_ranks: ranks must be a power of two, and rank must be less than ranks (got 3, 0)");
    three.ranks = 4;
    expect_refused(o, "mha_train_ranks: callbacks must not be NULL");
    run r = run_of(GPT2, 16);
    r.may_fail = true;
    run_on(0, &r);
    assert_int_equal(r.of[0].status, MHA_ERR_ARG);
    assert_string_equal(r.of[0].error.message, "mha_trainer_step: count must be a multiple of the 16 workers (got 8)");
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_ranks),
        cmocka_unit_test(test_moments_in_bf16),
        cmocka_unit_test(test_dropout_gates_and_teacher),
        cmocka_unit_test(test_order_of_additions),
        cmocka_unit_test(test_moments_are_divided),
        cmocka_unit_test(test_resume_with_other_ranks),
        cmocka_unit_test(test_failure_of_one_rank),
        cmocka_unit_test(test_failed_save),
        cmocka_unit_test(test_failed_sum),
        cmocka_unit_test(test_newer_struct),
        cmocka_unit_test(test_refused_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

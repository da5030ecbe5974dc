/* test_train_errors.c - tests errors of trainers: values that are not finite, failed steps, failed allocations,
 * folders that change, and invalid arguments. */
#include "mha/model_create.h"
#include "mha/model_save.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define GPT2 "models/gpt2-tiny"
enum { B = 2, L = 10 };

static const mha_train_options usual = {
    .size = sizeof usual, .rate = 1e-2, .decay = 0.1, .clip = 1, .warmup = 2, .steps = 9};

static void learn(mha_trainer *t, int steps)
{
    for (int n = 0; n < steps; n++)
        train_on(t, B, L);
}

/* ---- values that are not finite, and failed steps ---- */

static void test_error_names_the_faulty_layer(void **state)
{
    (void)state;
    int32_t ids[L];
    mha_error err = {0};
    mha_trainer *t = train_case(NULL, GPT2, &usual), *other = train_case(NULL, GPT2, &usual);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_train_batch batch[] = {{.input = &input}, {.input = &input}};
    learn(t, 2);
    learn(other, 2);
    train_texts(3, 1, L, ids);
    int64_t n = 0;
    while (n < t->count && strcmp(t->list[n].name, "transformer.h.1.mlp.c_fc.weight") != 0)
        n++;
    assert_true(n < t->count);
    float *weight = t->list[n].data;
    const float was = weight[1];
    weight[1] = NAN;
    assert_int_equal(mha_trainer_refresh(t, NULL), MHA_OK);
    assert_int_equal(mha_trainer_step(t, batch, 2, NULL, &err), MHA_ERR_NOT_FINITE);
    assert_string_equal(err.message,
                        "step 3: the loss of batch 1 is nan; the first non-finite result is the output of layer 1; "
                        "the first non-finite weight is in the tensor \"transformer.h.1.mlp.c_fc.weight\"");
    assert_int_equal(mha_trainer_step_count(t), 2);
    weight[1] = was;
    assert_int_equal(mha_trainer_refresh(t, NULL), MHA_OK);
    learn(t, 1);
    learn(other, 1);
    train_expect_same_state(t, other);
    assert_int_equal(mha__train_bad_gradient(t, 0, &err), MHA_ERR_NOT_FINITE);
    assert_string_equal(err.message, "step 4: the gradient of the tensor \"transformer.wte.weight\" must be finite");
    mha_trainer_free(t);
    mha_trainer_free(other);
}

/* If a batch fails after another batch of the step has added its gradients, the trainer must remain unchanged. */
static void test_a_failed_step_leaves_nothing(void **state)
{
    (void)state;
    int32_t ids[L], wrong[L];
    mha_error err = {0};
    mha_trainer *t = train_case(NULL, GPT2, &usual), *other = train_case(NULL, GPT2, &usual);
    train_texts(1, 1, L, ids);
    memcpy(wrong, ids, sizeof ids);
    wrong[3] = 100000;
    const mha_model_input input[] = {{.size = sizeof *input, .batch = 1, .length = L, .ids = ids},
                                     {.size = sizeof *input, .batch = 1, .length = L, .ids = wrong}};
    const mha_train_batch batch[] = {{.input = &input[0]}, {.input = &input[1]}};
    assert_int_equal(mha_trainer_step(t, batch, 2, NULL, &err), MHA_ERR_ARG);
    learn(t, 1);
    learn(other, 1);
    train_expect_same_state(t, other);
    mha_trainer_free(t);
    mha_trainer_free(other);
}

/* ---- failed allocations ---- */

/* The arguments of an operation that is repeated with failing allocations. */
typedef struct attempt {
    mha_ctx *ctx;
    const mha_model *model;
    mha_trainer *trainer;
    const char *folder;
    const mha_train_options *options;
} attempt;

static mha_status make_and_learn(const attempt *a, mha_error *err)
{
    int32_t ids[L];
    mha_trainer *t = NULL;
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_train_batch batches[] = {{.input = &input}, {.input = &input}, {.input = &input}, {.input = &input}};
    train_texts(1, 1, L, ids);
    mha_status status = mha_trainer_create(a->model, a->options, &t, err);
    for (int n = 0; n < 2 && status == MHA_OK; n++)
        status = mha_trainer_step(t, batches, a->options->workers > 1 ? a->options->workers : 1, NULL, err);
    mha_trainer_free(t);
    return status;
}

static mha_status save(const attempt *a, mha_error *err)
{
    return mha_trainer_save(a->trainer, a->folder, NULL, err);
}

static mha_status resume_once(const attempt *a, mha_error *err)
{
    mha_trainer *t = NULL;
    const mha_status status = mha_trainer_resume(a->ctx, a->folder, a->options, &t, err);
    mha_trainer_free(t);
    return status;
}

static void starve(counting *c, const attempt *a, mha_status (*run)(const attempt *a, mha_error *err))
{
    const long before = atomic_load(&c->live);
    long budget = 0;
    for (mha_status status = MHA_ERR_MEMORY; status != MHA_OK; budget++) {
        mha_error err = {0};
        atomic_store(&c->calls, 0);
        atomic_store(&c->budget, budget);
        status = run(a, &err);
        atomic_store(&c->budget, -1);
        if (status != MHA_OK) assert_int_equal(status, MHA_ERR_MEMORY);
        if (status != MHA_OK) assert_true(err.message[0] != '\0');
        assert_int_equal(atomic_load(&c->live), before);
    }
    printf("%ld failed allocations tested\n", budget - 1);
    assert_true(budget > 10);
}

/* Tests failed allocations of training and, if `files` is true, of saving and resuming. */
static void starve_trainer(const mha_train_options *options, bool files)
{
    counting c = {.budget = -1};
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    attempt a = {.folder = files_folder(), .options = options};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&c)};
    assert_int_equal(mha_ctx_create(&o, &a.ctx, NULL), MHA_OK);
    mha_model *model = case_model(a.ctx, "models/gemma2-tiny", &bare);
    a.model = model;
    a.trainer = train_case(a.ctx, "models/gemma2-tiny", options);
    starve(&c, &a, make_and_learn);
    if (files) starve(&c, &a, save);
    if (files) starve(&c, &a, resume_once);
    mha_trainer_free(a.trainer);
    mha_model_free(model);
    mha_ctx_free(a.ctx);
    files_remove(a.folder);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    const mha_train_options gated = {.size = sizeof gated, .gates = {MHA_GATES_L0, .initial = -0.5}, .workers = 4};
    mha_train_options in_bf16 = usual;
    in_bf16.dtype = MHA_BF16;
    starve_trainer(&usual, true);
    starve_trainer(&gated, true);
    starve_trainer(&in_bf16, false);
}

/* ---- error messages ---- */

static void expect_refused(mha_train_options o, const char *sentence)
{
    mha_trainer *t = NULL;
    mha_error err = {0};
    mha_model *model = case_open(NULL, GPT2);
    o.size = sizeof o;
    assert_int_equal(mha_trainer_create(model, &o, &t, &err), MHA_ERR_ARG);
    if (!strstr(err.message, sentence)) fail_msg("%s must contain %s", err.message, sentence);
    assert_null(t);
    mha_model_free(model);
}

static void expect_changed(const mha_model *model, mha_train_options o)
{
    mha_trainer *t = NULL;
    mha_error err = {0};
    o.size = sizeof o;
    assert_int_equal(mha_trainer_create(model, &o, &t, &err), MHA_ERR_FORMAT);
    assert_null(t);
    assert_string_equal(
        err.message, "tensors of the folder must match the model (the folder has changed since the model was opened)");
}

/* If the folder of an open model changes, a pooler that was added to it must be detected. A pooler that was removed
 * from it must remain part of the model. */
static void test_a_folder_that_changes(void **state)
{
    (void)state;
    static const char config[] = "{\"model_type\":\"bert\",\"vocab_size\":64,\"hidden_size\":32,"
                                 "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"intermediate_size\":48,"
                                 "\"max_position_embeddings\":32}";
    const mha_train_options gates = {.gates = {.penalty = MHA_GATES_L0, .only = 1}};
    float pooler[32 * 32] = {0};
    mha_named_tensor more[] = {
        {.name = "bert.pooler.dense.weight", .dtype = MHA_F32, .rank = 2, .shape = {32, 32}, .data = pooler},
        {.name = "bert.pooler.dense.bias", .dtype = MHA_F32, .rank = 1, .shape = {32}, .data = pooler}};
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    mha_error err = {0};
    mha_model *made = NULL;
    if (mha_model_create(NULL, config, NULL, &made, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int round = 0; round < 2; round++) {
        const char *folder = files_folder();
        const mha_model_save_options before = {.size = sizeof before, .tensors = more, .count = round ? 2 : 0};
        const mha_model_save_options after = {
            .size = sizeof after, .overwrite = 1, .tensors = more, .count = round ? 0 : 2};
        if (mha_model_save(made, folder, &before, &err) != MHA_OK) fail_msg("%s", err.message);
        mha_model *opened = case_model(NULL, folder, &bare);
        if (mha_model_save(made, folder, &after, &err) != MHA_OK) fail_msg("%s", err.message);
        mha_trainer *t = NULL;
        if (round == 0) {
            expect_changed(opened, usual);
            expect_changed(opened, gates);
        } else {
            assert_int_equal(mha_trainer_create(opened, &usual, &t, &err), MHA_OK);
        }
        mha_trainer_free(t);
        mha_model_free(opened);
        files_remove(folder);
    }
    mha_model_free(made);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const frozen[] = {"*.attn.*", "h.99.*"};
    expect_refused((mha_train_options){.rate = -1}, "rate must be in (0, 1e+06] (got -1");
    expect_refused((mha_train_options){.rate = NAN}, "rate must be in (0, 1e+06] (got nan)");
    expect_refused((mha_train_options){.beta1 = 1}, "beta1 must be in (0, 1) (got 1");
    expect_refused((mha_train_options){.beta2 = -0.5}, "beta2 must be in (0, 1) (got -0.5)");
    expect_refused((mha_train_options){.eps = INFINITY}, "eps must be in [1.17549e-38, 1] (got inf)");
    expect_refused((mha_train_options){.eps = 1e-46}, "eps must be in [1.17549e-38, 1] (got 1e-46");
    expect_refused((mha_train_options){.decay = -1}, "decay must be in [0, 1e+06] (got -1)");
    expect_refused((mha_train_options){.rate = 0.1, .floor = 0.2}, "floor must be in [0, 0.1] (got 0.2");
    expect_refused((mha_train_options){.clip = -1}, "clip must be in [0, inf) (got -1)");
    expect_refused((mha_train_options){.warmup = 10, .steps = 9}, "warmup must be from 0 to steps (got 10, 9)");
    expect_refused((mha_train_options){.decays = (mha_train_decay)7},
                   "decays must be a value of mha_train_decay (got 7)");
    expect_refused((mha_train_options){.frozen = frozen, .frozen_count = 2},
                   "frozen[1] must match a tensor of the model (got \"h.99.*\")");
    expect_refused((mha_train_options){.frozen_count = 1},
                   "frozen_count must be the number of entries in frozen (got 1, NULL)");
    mha_trainer *t = NULL;
    mha_error err = {0};
    mha_model *headless = case_model(NULL, "models/bert-tiny", NULL);
    assert_int_equal(mha_trainer_create(headless, NULL, &t, &err), MHA_ERR_UNSUPPORTED);
    mha_model_free(headless);
    t = train_case(NULL, GPT2, NULL);
    int32_t id = 1;
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 1, .ids = &id};
    const mha_train_batch batch = {.input = &input};
    /* a single token has no next token to predict */
    assert_int_equal(mha_trainer_step(t, &batch, 1, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "labels of 1 batches must not all be -100");
    assert_int_equal(mha_trainer_step(t, &batch, 0, NULL, &err), MHA_ERR_ARG);
    assert_int_equal(mha_trainer_step(NULL, &batch, 1, NULL, &err), MHA_ERR_ARG);
    assert_int_equal(mha_trainer_step(t, NULL, 1, NULL, &err), MHA_ERR_ARG);
    mha_trainer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_names_the_faulty_layer),
        cmocka_unit_test(test_a_failed_step_leaves_nothing),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_a_folder_that_changes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_layout_training.c - tests training runs that compare head layouts: equal parameter counts, losses of a direct
 * training run, threads, encoders, missing memory, and invalid options. */
#include "mha/layout_training.h"
#include "mha/model_create.h"
#include "support/alloc.h"
#include "support/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQ = 8, BATCH = 2, STEPS = 4 };
#define TOKENIZER MHA_TEST_DATA "/models/bert-mlm-tiny"

static mha_tokenizer *tokenizer;
static mha_train_data *decoder_data, *encoder_data;
static int64_t vocab;

static mha_train_data *data_of(int causal)
{
    mha_train_data *data;
    const mha_train_data_options o = {.size = sizeof o,
                                      .length = SEQ,
                                      .vocab = vocab,
                                      .tokenizer = tokenizer,
                                      .causal = causal,
                                      .first = mha_tokenizer_id(tokenizer, "[CLS]"),
                                      .end = mha_tokenizer_id(tokenizer, "[SEP]")};
    const char *text = "the cat sat on the mat, and the dog ran over the road to the other cat.";
    assert_int_equal(mha_train_data_create(NULL, &o, &data, NULL), MHA_OK);
    for (int n = 0; n < 10; n++)
        assert_int_equal(mha_train_data_add_text(data, text, strlen(text), 1, NULL), MHA_OK);
    assert_int_equal(mha_train_data_finish(data, NULL), MHA_OK);
    return data;
}

static int open_data(void **state)
{
    mha_error e = {0};
    (void)state;
    if (mha_tokenizer_open(NULL, TOKENIZER, &tokenizer, &e) != MHA_OK) return -1;
    vocab = mha_tokenizer_size(tokenizer);
    decoder_data = data_of(1);
    encoder_data = data_of(0);
    return 0;
}

static int close_data(void **state)
{
    (void)state;
    mha_train_data_free(decoder_data);
    mha_train_data_free(encoder_data);
    mha_tokenizer_free(tokenizer);
    return 0;
}

static mha_head_layout_options layout;
static mha_train_options train;

static mha_layout_training options_of(int encoder)
{
    layout = (mha_head_layout_options){
        .size = sizeof layout, .d_model = 16, .heads = 4, .layers = 2, .vocab = vocab, .seq = SEQ, .batch = BATCH};
    train = (mha_train_options){.size = sizeof train, .rate = 1e-2, .steps = STEPS, .clip = 1};
    return (mha_layout_training){.size = sizeof(mha_layout_training),
                                 .layout = &layout,
                                 .train = &train,
                                 .data = encoder ? encoder_data : decoder_data,
                                 .feed_forward = encoder ? 128 : 0, /* wider than the predictor of variant adaptive */
                                 .encoder = encoder,
                                 .tokenizer = tokenizer,
                                 .mask = mha_tokenizer_mask_id(tokenizer)};
}

/* Returns the number of parameters of the model that is created from the config, less those of removed heads. */
static int64_t created_parameters(const mha_layout_model *m, int encoder)
{
    mha_model *model;
    assert_int_equal(mha_model_create(NULL, m->config, NULL, &model, NULL), MHA_OK);
    const int64_t all = mha_model_describe(model)->parameters;
    mha_model_free(model);
    const int64_t head = 4 * 16 * 4 + (encoder ? 3 * 4 : 0);
    return all - (m->variant == MHA_HEAD_LAYOUT_PRUNED ? 2 * 1 * head : 0);
}

/* Parameters must be counted without weights: these models have 10^13 parameters. */
static void test_large_models(void **state)
{
    (void)state;
    mha_layout_model models[MHA_HEAD_LAYOUT_VARIANTS];
    for (int encoder = 0; encoder < 2; encoder++) {
        mha_layout_training o = options_of(encoder);
        layout.d_model = 32768;
        layout.heads = 256;
        layout.layers = 1024;
        o.feed_forward = 0;
        assert_int_equal(mha_layout_models(NULL, &o, models, NULL), MHA_OK);
        assert_true(models[0].parameters > 10000000000000);
        assert_true(models[0].train_bytes > 16 * (double)models[0].parameters);
        const double wide = models[0].train_bytes, parameters = (double)models[0].parameters;
        mha_train_options narrow = *o.train;
        narrow.moments = MHA_BF16;
        o.train = &narrow;
        assert_int_equal(mha_layout_models(NULL, &o, models, NULL), MHA_OK);
        assert_true(fabs(wide - models[0].train_bytes - 4 * parameters) < 1e-9 * wide);
        for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
            if (!models[v].refused)
                assert_true(llabs(models[v].parameters - models[0].parameters) <= models[0].parameters / 100);
    }
}

/* All models must have the number of parameters of variant mha within 1 %, and the sizes of their configs. */
static void test_models(void **state)
{
    (void)state;
    for (int encoder = 0; encoder < 2; encoder++) {
        const mha_layout_training o = options_of(encoder);
        mha_layout_model models[MHA_HEAD_LAYOUT_VARIANTS];
        assert_int_equal(mha_layout_models(NULL, &o, models, NULL), MHA_OK);
        assert_int_equal(models[0].feed_forward, encoder ? 128 : 48); /* 2.75 times 16, in multiples of 8 */
        for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++) {
            const bool selects =
                v == MHA_HEAD_LAYOUT_DYNAMIC || v == MHA_HEAD_LAYOUT_MOE || v == MHA_HEAD_LAYOUT_ADAPTIVE;
            if ((models[v].refused != NULL) != (selects && !encoder)) fail_msg("%d: %s", v, models[v].refused);
            if (models[v].refused) continue;
            assert_true(llabs(models[v].parameters - models[0].parameters) * 100 <= models[0].parameters);
            assert_true(strlen(models[v].config) + 1 < sizeof models[v].config);
            assert_int_equal(models[v].kept_heads, v == MHA_HEAD_LAYOUT_PRUNED ? 6 : 0);
            assert_true(models[v].train_bytes > 16 * (double)models[v].parameters);
            assert_int_equal(models[v].parameters, created_parameters(&models[v], encoder));
        }
        /* keys and values, layers, heads, head width and bytes per element */
        assert_true(models[MHA_HEAD_LAYOUT_MQA].kv_bytes == (encoder ? 0 : 2 * 2 * 1 * 4 * 4));
        assert_true(models[MHA_HEAD_LAYOUT_PRUNED].kv_bytes == (encoder ? 0 : 2 * 2 * 3 * 4 * 4));
    }
}

/* Takes the steps of variant gqa with the functions of train.h; the losses must be equal. */
static void test_equals_a_training_run(void **state)
{
    (void)state;
    const mha_layout_training o = options_of(0);
    mha_layout_model models[MHA_HEAD_LAYOUT_VARIANTS], *gqa = &models[MHA_HEAD_LAYOUT_GQA];
    mha_layout_trial trial;
    mha_model *model;
    mha_trainer *trainer;
    mha_train_report report = {0};
    double first = 0, loss;
    assert_int_equal(mha_layout_models(NULL, &o, models, NULL), MHA_OK);
    assert_int_equal(mha_layout_train(NULL, &o, gqa, 3, &trial, NULL), MHA_OK);
    const mha_model_create_options how = {.size = sizeof how, .seed = 3};
    mha_train_options again = train;
    again.seed = 3;
    assert_int_equal(mha_model_create(NULL, gqa->config, &how, &model, NULL), MHA_OK);
    assert_int_equal(mha_trainer_create(model, &again, &trainer, NULL), MHA_OK);
    const int64_t all = mha_train_data_describe(decoder_data)->sequences, held = (all + 9) / 10;
    int32_t ids[BATCH * SEQ];
    mha_model_input input = {.size = sizeof input, .batch = BATCH, .length = SEQ, .ids = ids};
    const mha_train_batch batch = {.input = &input};
    for (int64_t n = 0; n < STEPS * BATCH; n++) {
        const int64_t at = mha_train_sequence_order(3, n / (all - held), n % (all - held), all - held);
        mha_train_data_sequence(decoder_data, at, ids + n % BATCH * SEQ);
        if (n % BATCH == BATCH - 1) assert_int_equal(mha_trainer_step(trainer, &batch, 1, &report, NULL), MHA_OK);
        if (n == BATCH - 1) first = report.loss;
    }
    double sum = 0;
    for (int64_t n = 0; n < held; n += input.batch) {
        input.batch = held - n < BATCH ? held - n : BATCH;
        for (int64_t b = 0; b < input.batch; b++)
            mha_train_data_sequence(decoder_data, all - held + mha_train_sequence_order(3, -1, n + b, held),
                                    ids + b * SEQ);
        assert_int_equal(mha_trainer_loss(trainer, &batch, 1, &loss, NULL, NULL), MHA_OK);
        sum += loss * (double)input.batch;
    }
    assert_true(trial.first_loss == first);
    assert_int_equal(trial.held_out, held);
    assert_true(fabs(trial.loss - sum / (double)held) < 1e-12);
    assert_true(trial.step_best > 0 && trial.step_best <= trial.step_median && trial.token_time > 0);
    /* weights, gradients and two moments in float32 */
    assert_true(trial.peak_bytes > 16 * gqa->parameters && trial.peak_bytes < (16 * gqa->parameters) + (4 << 20));
    mha_trainer_free(trainer);
    mha_model_free(model);
}

/* The losses of all variants must be bitwise identical for other numbers of threads, and must depend on the seed. */
static void test_threads_and_seeds(void **state)
{
    (void)state;
    mha_ctx *ctx;
    const mha_ctx_options three = {.size = sizeof three, .threads = 3};
    assert_int_equal(mha_ctx_create(&three, &ctx, NULL), MHA_OK);
    for (int encoder = 0; encoder < 2; encoder++) {
        const mha_layout_training o = options_of(encoder);
        mha_layout_model models[MHA_HEAD_LAYOUT_VARIANTS];
        mha_layout_trial a, b, other;
        assert_int_equal(mha_layout_models(NULL, &o, models, NULL), MHA_OK);
        for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++) {
            if (models[v].refused) continue;
            assert_int_equal(mha_layout_train(NULL, &o, &models[v], 1, &a, NULL), MHA_OK);
            assert_int_equal(mha_layout_train(ctx, &o, &models[v], 1, &b, NULL), MHA_OK);
            assert_int_equal(mha_layout_train(ctx, &o, &models[v], 2, &other, NULL), MHA_OK);
            assert_true(a.loss == b.loss && a.first_loss == b.first_loss && a.loss != other.loss);
        }
    }
    mha_ctx_free(ctx);
}

/* If allocations fail, the call must return MHA_ERR_MEMORY and free its memory. */
static void test_starvation(void **state)
{
    (void)state;
    const mha_layout_training o = options_of(0);
    mha_layout_model models[MHA_HEAD_LAYOUT_VARIANTS];
    mha_layout_trial trial;
    assert_int_equal(mha_layout_models(NULL, &o, models, NULL), MHA_OK);
    counting counted = {.budget = -1};
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&counted)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long before = counted.live;
    mha_status status = MHA_ERR_MEMORY;
    for (long budget = 0; status != MHA_OK; budget += 1 + budget / 8) {
        mha_error error = {0};
        counted.budget = counted.calls + budget;
        status = mha_layout_train(ctx, &o, &models[MHA_HEAD_LAYOUT_PRUNED], 0, &trial, &error);
        if (status != MHA_OK) assert_int_equal(error.status, MHA_ERR_MEMORY);
        assert_int_equal(counted.live, before);
    }
    counted.budget = -1;
    mha_ctx_free(ctx);
}

static void refused(const mha_layout_training *o, const char *word)
{
    mha_error e = {0};
    mha_layout_model models[MHA_HEAD_LAYOUT_VARIANTS];
    assert_int_equal(mha_layout_models(NULL, o, models, &e), MHA_ERR_ARG);
    if (!strstr(e.message, word)) fail_msg("\"%s\" must contain %s", e.message, word);
}

static void test_refusals(void **state)
{
    (void)state;
    mha_error e = {0};
    mha_layout_training o = options_of(0);
    mha_layout_trial trial;
    const mha_layout_model none = {.refused = "it is"};
    assert_int_equal(mha_layout_models(NULL, &o, NULL, &e), MHA_ERR_ARG);
    assert_int_equal(mha_layout_train(NULL, &o, NULL, 0, &trial, &e), MHA_ERR_ARG);
    assert_int_equal(mha_layout_train(NULL, &o, &none, 0, &trial, &e), MHA_ERR_ARG);
    assert_non_null(strstr(e.message, "it is"));
    refused(NULL, "mha_layout_training");
#define WITHOUT(change, word) o = options_of(0), change, refused(&o, word)
    WITHOUT(o.layout = NULL, "layout");
    WITHOUT(o.train = NULL, "train");
    WITHOUT(o.data = NULL, "data");
    WITHOUT(train.steps = 0, "steps");
    WITHOUT(train.seed = 1, "seed");
    WITHOUT(train.gates.penalty = MHA_GATES_L1, "gates");
    WITHOUT(layout.seq = SEQ + 1, "layout->seq = 9");
    WITHOUT(layout.layers = 1025, "layout->layers");
    WITHOUT(layout.experts = 3, "layout->experts");
    WITHOUT(layout.heads = 3, "heads");
    WITHOUT(o.held_out_fraction = 1, "held_out_fraction");
    WITHOUT(o.held_out_fraction = NAN, "held_out_fraction");
    WITHOUT(o.held_out_fraction = 0.9999, "must leave a sequence");
    WITHOUT(o.held_out_sequences = -1, "held_out_sequences");
    WITHOUT(o.feed_forward = -8, "feed_forward");
    WITHOUT((o.encoder = 1, o.tokenizer = NULL), "tokenizer");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_large_models),
        cmocka_unit_test(test_equals_a_training_run),
        cmocka_unit_test(test_threads_and_seeds),
        cmocka_unit_test(test_starvation),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_data, close_data);
}

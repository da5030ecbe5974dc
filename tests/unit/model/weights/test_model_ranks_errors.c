/* test_model_ranks_errors.c - ranges of ranks (mha/model_ranks.h), models, options and calls that models divided among
 * ranks must reject, and failures of one rank, which all ranks must report. */
#include "mha/model_grads.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/thread_exchange.h"
#include "support/quantized/fp8_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ranges ---- */

static void test_ranges(void **state)
{
    (void)state;
    for (int64_t items = 0; items < 40; items++)
        for (int ranks = 1; ranks <= MHA_RANK_GROUPS; ranks++) {
            int64_t next = 0;
            for (int rank = 0; rank < ranks; rank++) {
                const mha_model_range range = mha_model_ranks_range(items, ranks, rank);
                assert_int_equal(range.first, next);
                assert_int_equal(range.first, items * (8 * rank / ranks) / 8);
                next += range.count;
            }
            assert_int_equal(next, items);
        }
    assert_int_equal(mha_model_ranks_range(-1, 2, 1).count, 0);
    assert_int_equal(mha_model_ranks_range(16, 9, 1).count, 0);
    assert_int_equal(mha_model_ranks_range(16, 2, 2).count, 0);
    assert_int_equal(mha_model_ranks_range(16, 2, -1).count, 0);
}

/* ---- rejected models, options and calls ---- */

static void expect(mha_status status, mha_status want, const mha_error *err, const char *words)
{
    if (status != want || !strstr(err->message, words))
        fail_msg("the call must fail with \"%s\" (got status %d, \"%s\")", words, (int)status, err->message);
}

/* Opening with these ranks must fail. */
static void refuse(const char *folder, const mha_model_ranks *ranks, mha_status want, const char *words)
{
    char path[512];
    mha_error err = {0};
    mha_model *model = NULL;
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .ranks = ranks};
    snprintf(path, sizeof path, "%s%s%s", *folder == '/' ? "" : MHA_TEST_DATA, *folder == '/' ? "" : "/", folder);
    expect(mha_model_open(NULL, path, &o, &model, &err), want, &err, words);
    assert_null(model);
}

static void test_refused_models(void **state)
{
    const mha_model_ranks one = {.size = sizeof one, .ranks = 1};
    mha_model_ranks wrong = one;
    (void)state;
    refuse("families2/mpnet", &one, MHA_ERR_UNSUPPORTED, "has relative positions (got model_type mpnet)");
    refuse("families2/deberta-v2", &one, MHA_ERR_UNSUPPORTED, "has relative positions (got model_type deberta-v2)");
    refuse("families2/deepseek-v3", &one, MHA_ERR_UNSUPPORTED, "has latent attention (got model_type deepseek_v3)");
    refuse("families2/olmo2", &one, MHA_ERR_UNSUPPORTED, "normalizes all heads together (got model_type olmo2)");
    refuse("families2/mixtral", &one, MHA_ERR_UNSUPPORTED, "has layers of experts (got model_type mixtral)");
    refuse("families2/qwen2-moe", &one, MHA_ERR_UNSUPPORTED, "has layers of experts (got model_type qwen2_moe)");
    refuse("families2/qwen3-moe", &one, MHA_ERR_UNSUPPORTED, "has layers of experts (got model_type qwen3_moe)");
    refuse("seq2seq/t5", &one, MHA_ERR_UNSUPPORTED, "is an encoder-decoder (got model_type t5)");
    refuse("seq2seq/marian", &one, MHA_ERR_UNSUPPORTED, "is an encoder-decoder (got model_type marian)");
    const char *few =
        case_created("{\"model_type\":\"gpt2\",\"n_embd\":8,\"vocab_size\":7,\"n_layer\":1,\"n_head\":2}", MHA_F32);
    refuse(few, &one, MHA_ERR_UNSUPPORTED, "vocab_size must be at least 8 with ranks (got 7)");
    files_remove(few);
    wrong.ranks = 9;
    refuse("models/gpt2-tiny", &wrong, MHA_ERR_ARG, "ranks must be from 1 to 8 (got 9)");
    wrong.ranks = 2;
    refuse("models/gpt2-tiny", &wrong, MHA_ERR_ARG, "exchange must not be NULL with 2 ranks");
    wrong.rank = 2;
    refuse("models/gpt2-tiny", &wrong, MHA_ERR_ARG, "rank must be from 0 to 1 (got 2)");
    wrong.size = 1;
    refuse("models/gpt2-tiny", &wrong, MHA_ERR_ARG, "mha_model_ranks");
}

static int seen(void *user, int64_t layer, int64_t heads, const float *probs)
{
    (void)user, (void)layer, (void)heads, (void)probs;
    return 0;
}

static void test_refused_calls(void **state)
{
    const mha_model_ranks one = {.size = sizeof one, .ranks = 1};
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .ranks = &one};
    mha_model *model = case_model(NULL, "models/gpt2-tiny", &o);
    const int32_t ids[] = {1, 640};
    const float gates[64] = {0};
    float hidden[2 * 48];
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    mha_model_input in = {.size = sizeof in, .batch = 1, .length = 1, .ids = ids, .gates = gates};
    mha_model_output out = {.size = sizeof out, .last_hidden = hidden};
    (void)state;
    expect(mha_model_forward(model, &in, &out, &err), MHA_ERR_UNSUPPORTED, &err, "gates must be NULL for a model");
    in.gates = NULL;
    out.on_attention = seen;
    expect(mha_model_forward(model, &in, &out, &err), MHA_ERR_UNSUPPORTED, &err, "on_attention must be NULL");
    out.on_attention = NULL;
    in.length = 2;
    expect(mha_model_forward(model, &in, &out, &err), MHA_ERR_ARG, &err, "ids[1] must be from 0 to 639 (got 640)");
    expect(mha_model_grads_create(model, NULL, &grads, &err), MHA_ERR_UNSUPPORTED, &err, "divided among ranks");
    mha_model_free(model);
}

/* ---- failures while the ranks open a model ---- */

typedef struct failing {
    const char *folder[MHA_RANK_GROUPS];
    mha_error error[MHA_RANK_GROUPS];
} failing;

static void open_rank(const mha_model_ranks *ranks, void *user)
{
    failing *f = user;
    mha_model *model = NULL;
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .ranks = ranks};
    mha_model_open(NULL, f->folder[ranks->rank], &o, &model, &f->error[ranks->rank]);
    mha_model_free(model);
}

static void check_failing(failing *f, int ranks, mha_status want, const char *here, const char *there, int bad)
{
    thread_exchange_run(ranks, open_rank, f);
    for (int rank = 0; rank < ranks; rank++)
        expect(f->error[rank].status, want, &f->error[rank], rank == bad ? here : there);
}

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":256,\"vocab_size\":61,\"num_hidden_layers\":2,"
    "\"initializer_range\":0.2,\"num_attention_heads\":7,\"head_dim\":6,\"intermediate_size\":101}";

static void test_failing_rank(void **state)
{
    const char *good = case_created(config, MHA_F32), *bad = case_created(config, MHA_F32);
    size_t bytes = 0;
    failing missing = {.folder = {good, good, "/missing"}}, other = {.folder = {good, bad, good}};
    (void)state;
    check_failing(&missing, 3, MHA_ERR_IO, "/missing", "rank 2: ", 2);
    char *text = files_read(files_path(bad, "model.safetensors"), &bytes);
    text[bytes - 17] ^= 1; /* in a tensor of one dimension, the last of the file */
    files_write(files_path(bad, "model.safetensors"), text, bytes);
    check_failing(&other, 3, MHA_ERR_ARG, "rank 1: config.json", "rank 1: config.json", 1);
    files_write(files_path(bad, "model.safetensors"), text, bytes / 2);
    failing cut = {.folder = {bad, good}};
    check_failing(&cut, 2, MHA_ERR_FORMAT, "model.safetensors", "rank 0: ", 0);
    free(text);
    files_remove(good);
    files_remove(bad);
}

/* Ranks whose weights have the same codes, but other scales, have other models. */
static void test_other_scales(void **state)
{
    const char *one = fp8_tables(0.5F, 0.25F), *other = fp8_tables(0.5F, 0.125F);
    failing f = {.folder = {one, other}};
    (void)state;
    check_failing(&f, 2, MHA_ERR_ARG, "rank 1: config.json", "rank 1: config.json", 1);
    files_remove(one);
    files_remove(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),        cmocka_unit_test(test_refused_models),
        cmocka_unit_test(test_refused_calls), cmocka_unit_test(test_failing_rank),
        cmocka_unit_test(test_other_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

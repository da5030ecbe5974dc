/* test_model_shard.c - tests passes in which the caller computes attention, pooling or token logits (mha_model_shard,
 * pool_long, `forward` of mha_generate_options). Results must be bitwise identical to those of a pass without these
 * callbacks. */
#include "mha/generate.h"
#include "mha/model_create.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <stdlib.h>
#include <string.h>

enum { L = 37, VOCAB = 64, E = 32, WIDEST = 64, LAYERS = 2, FIRST = 11, SECOND = 20 };

#define SIZES                                                                                                          \
    "\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":48," \
    "\"head_dim\":8,\"max_position_embeddings\":"

static const char *const configs[] = {
    "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_embd\":32,\"n_layer\":2,\"n_head\":4,\"n_positions\":48}",
    "{\"model_type\":\"llama\"," SIZES "48,\"num_key_value_heads\":2}",
    "{\"model_type\":\"llama\"," SIZES "16,\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2.0}}",
    "{\"model_type\":\"gemma2\"," SIZES
    "48,\"num_key_value_heads\":2,\"query_pre_attn_scalar\":8,\"sliding_window\":5}",
    "{\"model_type\":\"opt\",\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
    "\"ffn_dim\":48,\"max_position_embeddings\":48,\"word_embed_proj_dim\":32}",
    "{\"model_type\":\"bloom\",\"vocab_size\":64,\"hidden_size\":32,\"n_layer\":2,\"n_head\":4}",
    "{\"model_type\":\"bert\"," SIZES "48}",
    "{\"model_type\":\"roberta\"," SIZES "48,\"pad_token_id\":1}",
};
enum { CONFIGS = sizeof configs / sizeof *configs };

static mha_error err;
static int32_t ids[L], types[L];

static void check_status(mha_status wanted, mha_status status)
{
    if (status != wanted) fail_msg("status %d, expected %d: %s", (int)status, (int)wanted, err.message);
}

static mha_model *create(const char *config)
{
    const mha_model_create_options o = {.size = sizeof o, .seed = 3};
    mha_model *model = NULL;
    if (mha_model_create(NULL, config, &o, &model, &err) != MHA_OK) fail_msg("%s: %s", config, err.message);
    for (int i = 0; i < L; i++)
        ids[i] = i % 9 == 4 ? 1 : (7 * i + 3) % VOCAB, types[i] = 0;
    return model;
}

/* ---- attention computed by the caller ---- */

/* Callback: computes the attention of all rows with one call of the operator. */
static mha_status attend(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args, mha_error *e)
{
    int *calls = user;
    assert_int_equal(layer, (*calls)++);
    assert_int_equal(desc->q_len, L);
    return mha_attention(NULL, desc, args, e);
}

static void test_whole(void **state)
{
    (void)state;
    const int64_t start[] = {0, 5, FIRST, FIRST}, length[] = {5, FIRST - 5, 0, L - FIRST};
    for (int n = 0; n < CONFIGS; n++) {
        static float plain[L * E], shared[L * E], logits[VOCAB], shared_logits[VOCAB];
        int calls = 0;
        mha_model *model = create(configs[n]);
        const bool causal = mha_model_describe(model)->causal;
        const mha_model_shard shard = {
            .size = sizeof shard, .count = 4, .start = start, .length = length, .attend = attend, .user = &calls};
        mha_model_input in = {.size = sizeof in, .batch = 1, .length = L, .ids = ids, .type_ids = types};
        mha_model_output out = {.size = sizeof out, .last_hidden = plain, .last_logits = causal ? logits : NULL};
        check_status(MHA_OK, mha_model_forward(model, &in, &out, &err));
        in.shard = &shard;
        out.last_hidden = shared;
        out.last_logits = causal ? shared_logits : NULL;
        check_status(MHA_OK, mha_model_forward(model, &in, &out, &err));
        assert_int_equal(calls, LAYERS);
        assert_memory_equal(plain, shared, sizeof plain);
        if (causal) assert_memory_equal(logits, shared_logits, sizeof logits);
        mha_model_free(model);
    }
}

/* A mha_model_shard struct from a newer header must be read if its additional fields are zero, and rejected
 * otherwise. */
static void test_newer_struct(void **state)
{
    (void)state;
    int calls = 0;
    float hidden[L * E];
    mha_model *model = create(configs[0]);
    const int64_t start = 0, length = L;
    struct {
        mha_model_shard known;
        int64_t later;
    } shard = {.known = {sizeof shard, 1, &start, &length, attend, &calls}};
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = L, .ids = ids, .shard = &shard.known};
    const mha_model_output out = {.size = sizeof out, .last_hidden = hidden};
    check_status(MHA_OK, mha_model_forward(model, &in, &out, &err));
    assert_int_equal(calls, LAYERS);
    shard.later = 1;
    check_status(MHA_ERR_UNSUPPORTED, mha_model_forward(model, &in, &out, &err));
    shard.known.size = 3;
    check_status(MHA_ERR_ARG, mha_model_forward(model, &in, &out, &err));
    assert_non_null(strstr(err.message, "mha_model_shard.size must be"));
    shard.known = (mha_model_shard){.size = sizeof shard.known, .count = -1, .attend = attend};
    check_status(MHA_ERR_ARG, mha_model_forward(model, &in, &out, &err));
    assert_string_equal(err.message, "mha_model_shard: count must be at least 0 (got -1)");
    shard.known.count = 1;
    check_status(MHA_ERR_ARG, mha_model_forward(model, &in, &out, &err));
    assert_string_equal(err.message, "mha_model_shard: attend, start and length must not be NULL");
    mha_model_free(model);
}

/* The queries, keys and values passed to the callback, and the context, for each layer. */
typedef struct record {
    float q[LAYERS][L * E], k[LAYERS][L * E], v[LAYERS][L * E], context[LAYERS][L * E];
    int64_t row; /* first row of this shard */
    bool replays;
} record;

static void copy_rows(const mha_cview *from, int64_t heads, int64_t width, int64_t rows, float *to)
{
    const float *data = from->data;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t h = 0; h < heads; h++)
            memcpy(to + (i * heads + h) * width, data + i * from->stride[2] + h * from->stride[1],
                   (size_t)width * sizeof *to);
}

/* Callback: copies the operands and the context of all rows of a layer. If `replays` is true, fails unless the operands
 * of some rows equal the copies, and returns the copied context. */
static mha_status record_rows(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args,
                              mha_error *e)
{
    record *r = user;
    const int64_t D = desc->head_dim, H = desc->heads, Hkv = desc->kv_heads ? desc->kv_heads : H;
    if (!r->replays) {
        const mha_status status = mha_attention(NULL, desc, args, e);
        const mha_cview out = {args->out.data, {0, args->out.stride[1], args->out.stride[2], 1}};
        copy_rows(&args->q, H, D, L, r->q[layer]);
        copy_rows(&args->k, Hkv, D, L, r->k[layer]);
        copy_rows(&args->v, Hkv, D, L, r->v[layer]);
        copy_rows(&out, H, D, L, r->context[layer]);
        return status;
    }
    static float own[L * E];
    const struct {
        const mha_cview *view;
        int64_t heads;
        const float *whole;
    } all[] = {{&args->q, H, r->q[layer]}, {&args->k, Hkv, r->k[layer]}, {&args->v, Hkv, r->v[layer]}};
    for (int n = 0; n < 3; n++) {
        copy_rows(all[n].view, all[n].heads, D, SECOND, own);
        assert_memory_equal(own, all[n].whole + r->row * all[n].heads * D,
                            (size_t)(SECOND * all[n].heads * D) * sizeof *own);
    }
    for (int64_t i = 0; i < SECOND; i++)
        for (int64_t h = 0; h < H; h++)
            memcpy((float *)args->out.data + i * args->out.stride[2] + h * args->out.stride[1],
                   r->context[layer] + ((r->row + i) * H + h) * D, (size_t)D * sizeof *own);
    return MHA_OK;
}

static void test_some_rows(void **state)
{
    (void)state;
    for (int n = 0; n < CONFIGS; n++) {
        static record r;
        static float all[L * E], some[SECOND * E];
        mha_model *model = create(configs[n]);
        const int64_t zero = 0, whole = L, start = FIRST, length = SECOND;
        mha_model_shard shard = {
            .size = sizeof shard, .count = 1, .start = &zero, .length = &whole, .attend = record_rows, .user = &r};
        const mha_model_input in = {.size = sizeof in, .batch = 1, .length = L, .ids = ids, .shard = &shard};
        mha_model_output out = {.size = sizeof out, .last_hidden = all};
        r.replays = false;
        check_status(MHA_OK, mha_model_forward(model, &in, &out, &err));
        shard.start = &start;
        shard.length = &length;
        r.replays = true;
        r.row = FIRST;
        out.last_hidden = some;
        check_status(MHA_OK, mha_model_forward(model, &in, &out, &err));
        assert_memory_equal(some, all + FIRST * E, sizeof some);
        mha_model_free(model);
    }
}

static mha_status count_calls(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args,
                              mha_error *e)
{
    (void)layer;
    (void)desc;
    (void)args;
    (void)e;
    (*(int *)user)++;
    return *(int *)user == 5 ? MHA_ERR_IO : MHA_OK;
}

static void test_no_rows_and_errors(void **state)
{
    (void)state;
    int calls = 0;
    float logits[VOCAB] = {8};
    mha_model *model = create(configs[1]);
    const int64_t start[] = {3, 5}, length[] = {4, 2};
    mha_model_shard shard = {.size = sizeof shard, .attend = count_calls, .user = &calls};
    mha_model_input in = {.size = sizeof in, .batch = 1, .length = L, .ids = ids, .shard = &shard};
    const mha_model_output out = {.size = sizeof out, .last_logits = logits};
    check_status(MHA_OK, mha_model_forward(model, &in, &out, &err));
    assert_int_equal(calls, LAYERS);
    assert_float_equal(logits[0], 8, 0); /* must not be written, since the last token is not in the shard */
    calls = 4;
    check_status(MHA_ERR_IO, mha_model_forward(model, &in, &out, &err));
    shard.count = 2;
    shard.start = start;
    shard.length = length;
    check_status(MHA_ERR_ARG, mha_model_forward(model, &in, &out, &err));
    assert_string_equal(err.message, "mha_model_shard: range 1 must be within tokens 7 to 36 (got 2 tokens from 5)");
    ids[30] = VOCAB;
    shard.count = 1;
    check_status(MHA_ERR_ARG, mha_model_forward(model, &in, &out, &err));
    assert_string_equal(err.message, "ids[30] must be from 0 to 63 (got 64)");
    in.mask = (const uint8_t[L]){1};
    check_status(MHA_ERR_ARG, mha_model_forward(model, &in, &out, &err));
    mha_model_free(model);
}

/* ---- scores and generation with a callback ---- */

static void test_score_hidden(void **state)
{
    (void)state;
    static float hidden[L * E], plain[L - 1], from_hidden[L - 1];
    mha_model *model = create(configs[3]);
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = L, .ids = ids};
    const mha_model_output out = {.size = sizeof out, .last_hidden = hidden};
    check_status(MHA_OK, mha_model_forward(model, &in, &out, &err));
    check_status(MHA_OK, mha_model_score(model, ids, L, plain, &err));
    check_status(MHA_OK, mha_model_score_hidden(model, hidden, ids + 1, L - 1, from_hidden, &err));
    assert_memory_equal(plain, from_hidden, sizeof plain);
    check_status(MHA_ERR_ARG, mha_model_score_hidden(model, hidden, (const int32_t[]){VOCAB}, 1, from_hidden, &err));
    check_status(MHA_OK, mha_model_score_hidden(model, NULL, NULL, 0, NULL, &err));
    mha_model_free(model);
}

static mha_status forward(void *user, int64_t slot, const int32_t *text, int64_t length, int64_t past, float *logits,
                          mha_error *e)
{
    static int64_t last[2];
    assert_true(past == 0 || (past == length - 1 && past == last[slot]));
    last[slot] = length;
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = length, .ids = text};
    const mha_model_output out = {.size = sizeof out, .last_logits = logits};
    return mha_model_forward(user, &in, &out, e);
}

static void test_generate(void **state)
{
    (void)state;
    enum { NEW = 8 };
    int32_t plain[3 * NEW] = {0}, shared[3 * NEW] = {0};
    int64_t lengths[3], shared_lengths[3];
    mha_model *model = create(configs[1]);
    const mha_prompt prompts[] = {{ids, 20}, {ids, 21}, {ids + 4, 5}};
    mha_generate_options o = {
        .size = sizeof o, .max_new = NEW, .at_once = 2, .lookup = 4, .sampling = {.temperature = 1}};
    check_status(MHA_OK, mha_model_generate(model, prompts, 3, &o, plain, lengths, &err));
    o.forward = forward;
    o.forward_user = model;
    check_status(MHA_OK, mha_model_generate(model, prompts, 3, &o, shared, shared_lengths, &err));
    assert_memory_equal(plain, shared, sizeof plain);
    assert_memory_equal(lengths, shared_lengths, sizeof lengths);
    mha_model_free(model);
}

/* ---- embedding with a callback ---- */

static mha_status pool_long(void *user, const mha_model_input *in, mha_pool pool, float *vector, mha_error *e)
{
    static float hidden[512 * WIDEST];
    const mha_model *model = user;
    const int64_t width = mha_model_describe(model)->hidden;
    const mha_model_output out = {.size = sizeof out, .last_hidden = hidden};
    assert_true(in->length > 6 && in->length <= 512 && width <= WIDEST);
    const mha_status status = mha_model_forward(model, in, &out, e);
    memcpy(vector, hidden, (size_t)width * sizeof *vector);
    for (int64_t n = 0; pool == MHA_POOL_MEAN && n < width; n++) {
        double sum = 0;
        for (int64_t i = 0; i < in->length; i++)
            sum += (double)hidden[i * width + n];
        vector[n] = (float)(sum / (double)in->length);
    }
    return status;
}

static void test_embed(void **state)
{
    (void)state;
    static const char *const texts[] = {"a cat", "a cat sat on a mat and it was fat", "one",
                                        "the cat the cat the cat the"};
    static float plain[4 * WIDEST], shared[4 * WIDEST];
    mha_model *model = case_model(NULL, "models/bert-tiny", NULL);
    for (int n = 0; n < 4; n++) {
        mha_embed_options o = {.size = sizeof o, .pool = n / 2 ? MHA_POOL_CLS : MHA_POOL_MEAN, .no_normalize = n % 2};
        check_status(MHA_OK, mha_model_embed(model, texts, 4, &o, plain, &err));
        o.pool_long = pool_long;
        o.long_tokens = 6;
        o.user = model;
        check_status(MHA_OK, mha_model_embed(model, texts, 4, &o, shared, &err));
        assert_memory_equal(plain, shared, 4 * (size_t)mha_model_describe(model)->hidden * sizeof *plain);
    }
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),        cmocka_unit_test(test_newer_struct),
        cmocka_unit_test(test_some_rows),    cmocka_unit_test(test_no_rows_and_errors),
        cmocka_unit_test(test_score_hidden), cmocka_unit_test(test_generate),
        cmocka_unit_test(test_embed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

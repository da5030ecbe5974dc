/* test_cluster_model.c - tests a model on a text whose tokens are distributed over ranks. Every rank also runs the
 * model on the whole text. In modes tree and ordered, hidden states, logits, scores, embeddings and generated tokens
 * must be bitwise identical; in mode ring they must agree within rounding. Some texts are so short that a rank has no
 * tokens. */
#include "library/model/key_shards.h"
#include "mha/cluster_model.h"
#include "mha/model_create.h"
#include "mpi/cluster_case.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 60, E = 32, MAX = 5200, NEW = 30 };

#define SIZES                                                                                                      \
    "\"vocab_size\":60,\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\"" \
    ":48,\"head_dim\":8,\"initializer_range\":0.5,\"max_position_embeddings\":6000"

static const char *const configs[] = {
    "{\"model_type\":\"llama\"," SIZES ",\"num_key_value_heads\":2}",
    "{\"model_type\":\"gpt2\",\"vocab_size\":60,\"n_embd\":32,\"n_layer\":2,\"n_head\":4,\"n_positions\":6000,"
    "\"initializer_range\":0.5}",
    "{\"model_type\":\"gemma2\"," SIZES
    ",\"num_key_value_heads\":1,\"query_pre_attn_scalar\":8,\"sliding_window\":700}",
    "{\"model_type\":\"bloom\",\"vocab_size\":60,\"hidden_size\":32,\"n_layer\":2,\"n_head\":4,"
    "\"initializer_range\":0.5}",
    "{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2.0}}",
    "{\"model_type\":\"bert\"," SIZES "}",
    "{\"model_type\":\"roberta\"," SIZES ",\"pad_token_id\":1}",
};
enum { CONFIGS = sizeof configs / sizeof *configs };
static const mha_cluster_mode modes[] = {MHA_CLUSTER_TREE, MHA_CLUSTER_ORDERED, MHA_CLUSTER_RING};

static int32_t ids[MAX];

static mha_model *create(const char *config)
{
    const mha_model_create_options o = {.size = sizeof o, .seed = 3};
    mha_model *model = NULL;
    way = config;
    CHECK(mha_model_create(ctx, config, &o, &model, &err) == MHA_OK);
    return model;
}

/* Requires that a and b are bitwise identical if `exact` is true, and otherwise that they agree within rounding. */
static void compare(bool exact, const float *a, const float *b, int64_t count)
{
    if (exact) CHECK(memcmp(a, b, (size_t)count * sizeof *a) == 0);
    for (int64_t n = 0; n < count; n++)
        CHECK(fabsf(a[n] - b[n]) <= 1e-3f * (1 + fabsf(b[n])));
}

/* ---- forward pass ---- */

static void check_rows(bool exact, int64_t length, int64_t width, const float *own, const float *whole)
{
    const mha_cluster_part part = mha_cluster_part_of(length, me->cp, me->cp_rank);
    for (int n = 0; n < 2; n++) {
        compare(exact, own, whole + part.start[n] * width, part.length[n] * width);
        own += part.length[n] * width;
    }
}

static void check_pass(const mha_model *model, mha_cluster_mode mode, int64_t length)
{
    static float whole[MAX * E], own[MAX * E], gathered[MAX * E], last[VOCAB], shared_last[VOCAB];
    const bool causal = mha_model_describe(model)->causal, exact = mode != MHA_CLUSTER_RING;
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = length, .ids = ids};
    mha_model_output out = {.size = sizeof out, .last_hidden = whole, .last_logits = causal ? last : NULL};
    CHECK(mha_model_forward(model, &in, &out, &err) == MHA_OK);
    out.last_hidden = own;
    out.last_logits = causal ? shared_last : NULL;
    CHECK(mha_cluster_model_forward(cluster, model, mode, &in, &out, &err) == MHA_OK);
    check_rows(exact, length, E, own, whole);
    if (causal) compare(exact, shared_last, last, VOCAB);
    CHECK(mha_cluster_gather_rows(cluster, length, E * sizeof *own, own, gathered, &err) == MHA_OK);
    if (me->cp_rank == 0) compare(exact, gathered, whole, length * E);
}

static void check_score(const mha_model *model, mha_cluster_mode mode, int64_t count)
{
    static float whole[MAX], shared[MAX];
    if (!mha_model_describe(model)->causal) return;
    CHECK(mha_model_score(model, ids, count, whole, &err) == MHA_OK);
    CHECK(mha_cluster_model_score(cluster, model, mode, ids, count, shared, &err) == MHA_OK);
    compare(mode != MHA_CLUSTER_RING, shared, whole, count - 1);
}

/* ---- generation ---- */

/* Compares the logits after each new token, computed with the cached keys of all ranks, with those of a pass over the
 * whole sequence. */
static void check_steps(const mha_model *model, int64_t prompt)
{
    static float whole[VOCAB], shared[VOCAB];
    mha__key_shards s = {.cluster = cluster,
                         .ctx = ctx,
                         .mode = MHA_CLUSTER_TREE,
                         .room = prompt + 2 * MHA_ATTN_CHUNK,
                         .layers = mha_model_describe(model)->layers};
    s.cache = calloc((size_t)s.layers, sizeof(mha_cache *));
    CHECK(s.cache);
    mha__shards_begin(&s, prompt);
    for (int64_t length = prompt; length < prompt + 4; length++) {
        const bool fresh = length == prompt;
        const mha_cluster_part last = {{length - 1, length}, {1, 0}};
        const mha_cluster_part part = fresh ? mha_cluster_part_of(length, me->cp, me->cp_rank) : last;
        const mha_model_shard shard = {.size = sizeof shard,
                                       .count = 2,
                                       .start = part.start,
                                       .length = part.length,
                                       .attend = fresh ? mha__shards_prefill : mha__shards_decode,
                                       .user = &s};
        mha_model_input in = {.size = sizeof in, .batch = 1, .length = length, .ids = ids, .shard = &shard};
        mha_model_output out = {.size = sizeof out, .last_logits = shared};
        if (!fresh) CHECK(mha__shards_grow(&s, &err) == MHA_OK);
        CHECK(mha_model_forward(model, &in, &out, &err) == MHA_OK);
        in.shard = NULL;
        out.last_logits = whole;
        CHECK(mha_model_forward(model, &in, &out, &err) == MHA_OK);
        if (!fresh) compare(true, shared, whole, VOCAB);
    }
    mha__shards_free(&s);
}

static void check_generation(const mha_model *model, mha_cluster_mode mode)
{
    static int32_t whole[3 * NEW], shared[3 * NEW];
    int64_t lengths[3], shared_lengths[3];
    const mha_prompt prompts[] = {{ids, 1010}, {ids, 2040}, {ids + 7, 2048 * me->cp + 500}};
    const int64_t count = prompts[2].count + NEW < MAX ? 3 : 2;
    const mha_generate_options o = {
        .size = sizeof o, .max_new = NEW, .eos_count = -1, .sampling = {.temperature = 1, .seed = 5}};
    CHECK(mha_model_generate(model, prompts, count, &o, whole, lengths, &err) == MHA_OK);
    CHECK(mha_cluster_model_generate(cluster, model, mode, prompts, count, &o, shared, shared_lengths, &err) == MHA_OK);
    CHECK(memcmp(lengths, shared_lengths, (size_t)count * sizeof *lengths) == 0);
    CHECK(memcmp(whole, shared, (size_t)(count * NEW) * sizeof *whole) == 0);
}

/* ---- rejected inputs ---- */

static void check_errors(const mha_model *model)
{
    float logits[VOCAB];
    const mha_model_output out = {.size = sizeof out, .last_logits = logits};
    mha_model_input in = {.size = sizeof in, .batch = 1, .length = 3000, .ids = ids};
    ids[2900] = VOCAB;
    CHECK(mha_cluster_model_forward(cluster, model, MHA_CLUSTER_TREE, &in, &out, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "ids[2900] must be from 0 to 59 (got 60)"));
    ids[2900] = 2;
    CHECK(!mha_cluster_broken(cluster));
    CHECK(mha_cluster_model_forward(cluster, model, (mha_cluster_mode)7, &in, &out, &err) == MHA_ERR_ARG);
    CHECK(mha_cluster_model_forward(cluster, NULL, MHA_CLUSTER_TREE, &in, &out, &err) == MHA_ERR_ARG);
    CHECK(mha_cluster_model_divides(cluster, model, 1024) == 0);
    CHECK(mha_cluster_model_divides(cluster, model, 1025) == (me->cp > 1));
}

/* Structs of newer headers must be accepted if their additional fields are zero, and rejected otherwise. */
static void check_newer_structs(const mha_model *model)
{
    static float logits[VOCAB];
    static int32_t out[NEW];
    int64_t length;
    const mha_prompt prompt = {ids, 1100};
    struct {
        mha_model_input known;
        int64_t later;
    } in = {.known = {.size = sizeof in, .batch = 1, .length = 1100, .ids = ids}};
    struct {
        mha_model_output known;
        int64_t later;
    } to = {.known = {.size = sizeof to, .last_logits = logits}};
    struct {
        mha_generate_options known;
        int64_t later;
    } how = {.known = {.size = sizeof how, .max_new = 2, .eos_count = -1}};
    struct {
        mha_embed_options known;
        int64_t later;
    } pool = {.known = {.size = sizeof pool}, .later = 1};
    const mha_cluster_mode mode = MHA_CLUSTER_TREE;
    CHECK(mha_cluster_model_forward(cluster, model, mode, &in.known, &to.known, &err) == MHA_OK);
    CHECK(mha_cluster_model_generate(cluster, model, mode, &prompt, 1, &how.known, out, &length, &err) == MHA_OK);
    to.later = how.later = 1;
    CHECK(mha_cluster_model_forward(cluster, model, mode, &in.known, &to.known, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "mha_model_output.size must be at most "));
    CHECK(mha_cluster_model_generate(cluster, model, mode, &prompt, 1, &how.known, out, &length, &err) ==
          MHA_ERR_UNSUPPORTED);
    in.later = 1;
    CHECK(mha_cluster_model_forward(cluster, model, mode, &in.known, &to.known, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "mha_model_input.size must be at most "));
    CHECK(mha_cluster_model_embed(cluster, model, mode, NULL, 0, &pool.known, logits, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "mha_embed_options.size must be at most "));
}

int main(void)
{
    const mha_cluster_options options = {.size = sizeof options, .cp = -1};
    cluster_begin(&options);
    CHECK(me->cp == me->ranks);
    for (int i = 0; i < MAX; i++)
        ids[i] = i % 91 == 4 ? 1 : (int32_t)((7 * i + i / 13) % VOCAB);
    for (int n = 0; n < CONFIGS; n++) {
        mha_model *model = create(configs[n]);
        check_pass(model, modes[n % 3], 1024 * me->cp + 700);
        check_pass(model, modes[(n + 1) % 3], 700);
        check_score(model, modes[n % 2], 2500);
        if (n == 0) check_pass(model, MHA_CLUSTER_TREE, 5000);
        if (n < 4) check_steps(model, n == 0 ? 3071 : n == 1 ? 1000 : 2600);
        if (n == 0 || n == 4) check_generation(model, modes[n % 3]);
        if (n == 0) check_errors(model);
        if (n == 0) check_newer_structs(model);
        mha_model_free(model);
    }
    cluster_end();
    return 0;
}

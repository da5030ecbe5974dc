/* model_generate.c - forward passes for mha_model_generate in which each rank caches the keys and values that it has
 * computed. Every rank samples the same tokens from the same logits. */
#include "library/model/key_shards.h"
#include "library/model/model_pass.h"
#include <stdlib.h>
#include <string.h>

typedef struct generation {
    const mha_model *model;
    mha__key_shards shards;
} generation;

/* Runs the tokens of `part` with one of the functions of key_shards.h. */
static mha_status run_part(generation *g, const mha_cluster_part *part, const int32_t *ids, int64_t length,
                           mha_status (*attend)(void *, int64_t, const mha_attn_desc *, const mha_attn_args *,
                                                mha_error *),
                           float *logits, mha_error *err)
{
    const mha_model_shard shard = {.size = sizeof shard,
                                   .count = 2,
                                   .start = part->start,
                                   .length = part->length,
                                   .attend = attend,
                                   .user = &g->shards};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = length, .ids = ids, .shard = &shard};
    const mha_model_output output = {.size = sizeof output, .last_logits = logits};
    return mha_model_forward(g->model, &input, &output, err);
}

static mha_status read_prompt(generation *g, const int32_t *ids, int64_t length, float *logits, mha_error *err)
{
    mha_cluster *c = g->shards.cluster;
    const mha__group group = mha__cp_group(c);
    const mha_cluster_part part = mha_cluster_part_of(length, group.count, group.me);
    mha__shards_begin(&g->shards, length);
    MHA__TRY(run_part(g, &part, ids, length, mha__shards_prefill, logits, err));
    return mha__group_broadcast(c, &group, mha__rank_of_token(length, group.count, length - 1), logits,
                                (size_t)mha_model_describe(g->model)->vocab * sizeof *logits, err);
}

static mha_status forward(void *user, int64_t slot, const int32_t *ids, int64_t length, int64_t past, float *logits,
                          mha_error *err)
{
    generation *g = user;
    const mha_cluster_part last = {{length - 1, length}, {1, 0}};
    (void)slot;
    if (past == 0) return read_prompt(g, ids, length, logits, err);
    MHA__TRY(mha__shards_grow(&g->shards, err));
    return run_part(g, &last, ids, length, mha__shards_decode, logits, err);
}

/* Returns the maximum length of a sequence: the length of the longest prompt plus max_new. */
static int64_t room_of(const mha_prompt *prompts, int64_t count, const mha_generate_options *o)
{
    int64_t longest = 0;
    for (int64_t n = 0; prompts && n < count; n++)
        longest = prompts[n].count > longest ? prompts[n].count : longest;
    return longest + mha__min64(o->max_new, INT64_MAX - longest);
}

static mha_status generate(generation *g, const mha_prompt *prompts, int64_t count, mha_generate_options *o,
                           int32_t *out, int64_t *lengths, mha_error *err)
{
    mha__key_shards *s = &g->shards;
    s->layers = mha_model_describe(g->model)->layers;
    s->cache = calloc((size_t)s->layers, sizeof(mha_cache *));
    if (!s->cache) return mha__cluster_no_memory(s->cluster, err, (size_t)s->layers * sizeof *s->cache, "caches");
    o->at_once = 1;
    o->lookup = 0;
    o->forward = forward;
    o->forward_user = g;
    return mha_model_generate(g->model, prompts, count, o, out, lengths, err);
}

mha_status mha_cluster_model_generate(mha_cluster *cluster, const mha_model *model, mha_cluster_mode mode,
                                      const mha_prompt *prompts, int64_t count, const mha_generate_options *options,
                                      int32_t *out, int64_t *lengths, mha_error *err)
{
    mha_error why = {0};
    MHA__TRY(mha__pass_check(cluster, model, mode, err));
    mha_generate_options o;
    if (!options) return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "options must not be NULL");
    MHA__TRY(mha__cluster_read(cluster, &o, sizeof o, options, "mha_generate_options", err));
    if (o.forward) return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "mha_generate_options: forward must be NULL");
    const int64_t room = room_of(prompts, count, &o);
    if (o.cache_dtype != MHA_DTYPE_DEFAULT || o.no_cache || !mha_cluster_model_divides(cluster, model, room))
        return mha_model_generate(model, prompts, count, &o, out, lengths, err);
    generation g = {.model = model,
                    .shards = {.cluster = cluster, .ctx = mha_model_ctx(model), .mode = mode, .room = room}};
    const mha_status status = generate(&g, prompts, count, &o, out, lengths, &why);
    if (cluster->pending == 0) mha__shards_free(&g.shards); /* otherwise, a transfer may still use this memory */
    return mha__pass_end(cluster, status, &why, err);
}

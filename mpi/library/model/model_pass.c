/* model_pass.c - runs a model on a sequence distributed over the ranks of a cp group: forward pass, gathering of rows,
 * scores and embeddings.
 *
 * Each rank computes its tokens in all layers; only attention requires data of other ranks. */
#include "library/model/model_pass.h"

#include "library/shard_call.h"
#include <stdlib.h>
#include <string.h>

/* ---- texts that can be distributed ---- */

static mha_status attend_nothing(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args,
                                 mha_error *err)
{
    (void)user;
    (void)layer;
    (void)desc;
    (void)args;
    (void)err;
    return MHA_OK;
}

int mha_cluster_model_divides(const mha_cluster *cluster, const mha_model *model, int64_t length)
{
    const int32_t id = 0;
    const mha_model_shard none = {.size = sizeof none, .attend = attend_nothing};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 1, .ids = &id, .shard = &none};
    if (!cluster || !model || cluster->info.cp == 1 || length <= MHA_ATTN_CHUNK) return 0;
    return mha_model_forward(model, &input, NULL, NULL) == MHA_OK;
}

/* ---- failures ---- */

mha_status mha__pass_end(mha_cluster *cluster, mha_status status, const mha_error *why, mha_error *err)
{
    if (status == MHA_OK) return MHA_OK;
    mha_error failure = *why;
    if (strncmp(why->message, "rank ", 5) != 0) mha__cluster_fail(cluster, &failure, status, "%s", why->message);
    if (status != MHA_ERR_ARG && status != MHA_ERR_UNSUPPORTED) mha__cluster_keep_failure(cluster, &failure);
    if (err) *err = failure;
    return status;
}

mha_status mha__pass_check(const mha_cluster *cluster, const mha_model *model, mha_cluster_mode mode, mha_error *err)
{
    if (!cluster || !model) return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "cluster and model must not be NULL");
    return mha__mode_check(cluster, mode, err);
}

/* ---- the pass ---- */

typedef struct pass {
    mha_cluster *cluster;
    mha_ctx *ctx;
    mha_cluster_mode mode;
} pass;

static mha_status attend(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args,
                         mha_error *err)
{
    const pass *p = user;
    (void)layer;
    return mha_cluster_attention(p->cluster, p->ctx, p->mode, desc, args, err);
}

int mha__rank_of_token(int64_t length, int cp, int64_t token)
{
    for (int rank = 0; rank < cp; rank++) {
        const mha_cluster_part part = mha_cluster_part_of(length, cp, rank);
        for (int n = 0; n < 2; n++)
            if (token >= part.start[n] && token < part.start[n] + part.length[n]) return rank;
    }
    return 0;
}

/* Copies the outputs that depend on one token from the rank that has computed them to all ranks. */
static mha_status spread(mha_cluster *c, const mha_model *model, const mha_model_input *in, const mha_model_output *out,
                         mha_error *err)
{
    const mha__group group = mha__cp_group(c);
    const mha_model_info *info = mha_model_describe(model);
    if (out->pooled)
        MHA__TRY(mha__group_broadcast(c, &group, mha__rank_of_token(in->length, group.count, 0), out->pooled,
                                      (size_t)info->hidden * sizeof *out->pooled, err));
    if (!out->last_logits) return MHA_OK;
    return mha__group_broadcast(c, &group, mha__rank_of_token(in->length, group.count, in->length - 1),
                                out->last_logits, (size_t)info->vocab * sizeof *out->last_logits, err);
}

static mha_status read_forward(const mha_cluster *c, const mha_model_input *input, const mha_model_output *output,
                               mha_model_input *in, mha_model_output *out, mha_error *err)
{
    if (!input) return mha__cluster_fail(c, err, MHA_ERR_ARG, "input must not be NULL");
    MHA__TRY(mha__cluster_read(c, in, sizeof *in, input, "mha_model_input", err));
    MHA__TRY(mha__cluster_read(c, out, sizeof *out, output, "mha_model_output", err));
    return in->shard ? mha__cluster_fail(c, err, MHA_ERR_ARG, "mha_model_input: shard must be NULL") : MHA_OK;
}

mha_status mha_cluster_model_forward(mha_cluster *cluster, const mha_model *model, mha_cluster_mode mode,
                                     const mha_model_input *input, const mha_model_output *output, mha_error *err)
{
    mha_model_input in;
    mha_model_output out;
    mha_error why = {0};
    MHA__TRY(mha__pass_check(cluster, model, mode, err));
    MHA__TRY(read_forward(cluster, input, output, &in, &out, err));
    pass p = {cluster, mha_model_ctx(model), mode};
    const mha_cluster_part part = mha_cluster_part_of(in.length, cluster->info.cp, cluster->info.cp_rank);
    const mha_model_shard shard = {
        .size = sizeof shard, .count = 2, .start = part.start, .length = part.length, .attend = attend, .user = &p};
    in.shard = &shard;
    mha_status status = mha_model_forward(model, &in, &out, &why);
    if (status == MHA_OK) status = spread(cluster, model, &in, &out, &why);
    return mha__pass_end(cluster, status, &why, err);
}

/* ---- rows of all ranks ---- */

mha_status mha_cluster_gather_rows(mha_cluster *cluster, int64_t length, size_t bytes, const void *own, void *all,
                                   mha_error *err)
{
    if (!cluster) return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "cluster must not be NULL");
    if (length < 0)
        return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "length must be at least 0 (got %lld)", (long long)length);
    const mha__group g = mha__cp_group(cluster);
    for (int rank = 0; rank < g.count; rank++) {
        const mha_cluster_part part = mha_cluster_part_of(length, g.count, rank);
        const char *from = own;
        for (int n = 0; n < 2; n++) {
            const size_t size = (size_t)part.length[n] * bytes;
            char *to = g.me == 0 && size > 0 ? (char *)all + (size_t)part.start[n] * bytes : NULL;
            if (g.me == 0 && rank == 0 && size > 0) memcpy(to, from, size);
            if (g.me == 0 && rank > 0)
                MHA__TRY(mha__cluster_receive(cluster, to, size, mha__group_rank(&g, rank), err));
            if (g.me == rank && rank > 0) MHA__TRY(mha__cluster_send(cluster, from, size, g.first, err));
            if (g.me == rank) from += size;
        }
    }
    return mha__cluster_wait(cluster, "gathering rows", err);
}

/* ---- scores ---- */

/* Scores this rank's tokens from their hidden states, and then exchanges scores, so that every rank has all scores. */
static mha_status score_part(mha_cluster *c, const mha_model *model, const float *hidden, const int32_t *next,
                             int64_t length, float *logprob, mha_error *err)
{
    const mha__group g = mha__cp_group(c);
    const mha_cluster_part own = mha_cluster_part_of(length, g.count, g.me);
    for (int n = 0; n < 2; n++) {
        const float *from = hidden + mha__chunk(&own, n).local * mha_model_describe(model)->hidden;
        MHA__TRY(mha_model_score_hidden(model, from, next + own.start[n], own.length[n], logprob + own.start[n], err));
    }
    for (int rank = 0; rank < g.count; rank++) {
        const mha_cluster_part part = mha_cluster_part_of(length, g.count, rank);
        for (int n = 0; n < 2; n++)
            MHA__TRY(mha__group_broadcast(c, &g, rank, logprob + part.start[n],
                                          (size_t)part.length[n] * sizeof *logprob, err));
    }
    return MHA_OK;
}

static mha_status no_memory(const mha_cluster *c, size_t bytes, mha_error *err)
{
    return mha__cluster_no_memory(c, err, bytes, "hidden states");
}

/* Allocates last_hidden of this rank's part. */
static float *make_hidden(const mha_cluster *c, const mha_model *model, int64_t length, size_t *bytes)
{
    const mha_cluster_part part = mha_cluster_part_of(length, c->info.cp, c->info.cp_rank);
    *bytes = (size_t)(mha__part_length(&part) * mha_model_describe(model)->hidden) * sizeof(float);
    return malloc(*bytes + 1);
}

mha_status mha_cluster_model_score(mha_cluster *cluster, const mha_model *model, mha_cluster_mode mode,
                                   const int32_t *ids, int64_t count, float *logprob, mha_error *err)
{
    size_t bytes;
    mha_error why = {0};
    MHA__TRY(mha__pass_check(cluster, model, mode, err));
    const mha_model_info *info = mha_model_describe(model);
    if (!ids || !logprob || info->rotation_by_length || !info->causal || !info->logits ||
        !mha_cluster_model_divides(cluster, model, count - 1))
        return mha_model_score(model, ids, count, logprob, err);
    float *hidden = make_hidden(cluster, model, count - 1, &bytes);
    if (!hidden) return mha__pass_end(cluster, no_memory(cluster, bytes, &why), &why, err);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = count - 1, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    mha_status status = mha_cluster_model_forward(cluster, model, mode, &input, &output, &why);
    if (status == MHA_OK) status = score_part(cluster, model, hidden, ids + 1, count - 1, logprob, &why);
    free(hidden);
    return mha__pass_end(cluster, status, &why, err);
}

/* ---- embeddings ---- */

typedef struct embedding {
    mha_cluster *cluster;
    const mha_model *model;
    mha_cluster_mode mode;
} embedding;

static void add_rows(const float *hidden, int64_t rows, int64_t width, double *sums)
{
    for (int64_t e = 0; e < width; e++)
        for (int64_t i = 0; i < rows; i++)
            sums[e] += (double)hidden[i * width + e];
}

/* Sums the rows of all ranks in the order of the sequence: the sums move from the rank of each chunk to the rank of the
 * next chunk, because adding separate sums of chunks would round differently. All ranks receive the result. */
static mha_status sum_rows(mha_cluster *c, int64_t length, const float *hidden, int64_t width, double *sums,
                           mha_error *err)
{
    const mha__group g = mha__cp_group(c);
    const size_t bytes = (size_t)width * sizeof *sums;
    int at = 0;
    memset(sums, 0, bytes);
    for (int chunk = 0; chunk < 2 * g.count; chunk++) {
        const int n = chunk < g.count ? 0 : 1, rank = n == 0 ? chunk : 2 * g.count - 1 - chunk;
        const mha_cluster_part part = mha_cluster_part_of(length, g.count, rank);
        const mha__range rows = mha__chunk(&part, n);
        if (rows.length == 0) continue;
        if (at != rank && g.me == at) MHA__TRY(mha__cluster_send(c, sums, bytes, mha__group_rank(&g, rank), err));
        if (at != rank && g.me == rank) MHA__TRY(mha__cluster_receive(c, sums, bytes, mha__group_rank(&g, at), err));
        MHA__TRY(mha__cluster_wait(c, "summing hidden states", err));
        if (g.me == rank) add_rows(hidden + rows.local * width, rows.length, width, sums);
        at = rank;
    }
    return mha__group_broadcast(c, &g, at, sums, bytes, err);
}

static mha_status pool_rows(const embedding *e, int64_t length, mha_pool pool, const float *hidden, double *sums,
                            float *vector, mha_error *err)
{
    const mha__group g = mha__cp_group(e->cluster);
    const int64_t width = mha_model_describe(e->model)->hidden;
    if (pool == MHA_POOL_CLS) {
        if (g.me == 0) memcpy(vector, hidden, (size_t)width * sizeof *vector);
        return mha__group_broadcast(e->cluster, &g, 0, vector, (size_t)width * sizeof *vector, err);
    }
    MHA__TRY(sum_rows(e->cluster, length, hidden, width, sums, err));
    for (int64_t n = 0; n < width; n++)
        vector[n] = (float)(sums[n] / (double)length);
    return MHA_OK;
}

static mha_status pool_long(void *user, const mha_model_input *input, mha_pool pool, float *vector, mha_error *err)
{
    const embedding *e = user;
    size_t bytes;
    mha_error why = {0};
    float *hidden = make_hidden(e->cluster, e->model, input->length, &bytes);
    double *sums = malloc((size_t)mha_model_describe(e->model)->hidden * sizeof *sums);
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    mha_status status = hidden && sums ? MHA_OK : no_memory(e->cluster, bytes, &why);
    if (status == MHA_OK) status = mha_cluster_model_forward(e->cluster, e->model, e->mode, input, &output, &why);
    if (status == MHA_OK) status = pool_rows(e, input->length, pool, hidden, sums, vector, &why);
    if (!e->cluster->broken) free(sums); /* else a transfer may still use it */
    free(hidden);
    return mha__pass_end(e->cluster, status, &why, err);
}

mha_status mha_cluster_model_embed(mha_cluster *cluster, const mha_model *model, mha_cluster_mode mode,
                                   const char *const *texts, int64_t count, const mha_embed_options *options,
                                   float *out, mha_error *err)
{
    embedding e = {cluster, model, mode};
    mha_error why = {0};
    MHA__TRY(mha__pass_check(cluster, model, mode, err));
    mha_embed_options o;
    MHA__TRY(mha__cluster_read(cluster, &o, sizeof o, options, "mha_embed_options", err));
    if (o.pool_long) return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "mha_embed_options: pool_long must be NULL");
    if (mha_cluster_model_divides(cluster, model, MHA_ATTN_CHUNK + 1)) {
        o.pool_long = pool_long;
        o.long_tokens = MHA_ATTN_CHUNK;
        o.user = &e;
    }
    const mha_status status = mha_model_embed(model, texts, count, &o, out, &why);
    return mha__pass_end(cluster, status, &why, err);
}

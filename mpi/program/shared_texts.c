/* shared_texts.c - divides long texts among the ranks. Before every text, the ranks agree that no rank has failed, and
 * compare the text; before the first text, they compare the model. */
#include "program/shared_texts.h"

#include "mha/cluster_model.h"
#include "mha/train_data.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sharing {
    mha_cluster *cluster;
    mha_cluster_mode mode;
    bool divides_models;
    const mha_model *compared; /* the model that the ranks have compared */
    bool ended, broken;
    mha_error failure;
} sharing;
static sharing only;

bool shared_texts_broken(void)
{
    return only.broken;
}

/* Returns the status of a pass. Sets `broken` if only this rank may have failed. */
static mha_status passed(sharing *s, mha_status status)
{
    if (s->divides_models && (status == MHA_ERR_IO || status == MHA_ERR_MEMORY || status == MHA_ERR_CANCELED))
        s->broken = true;
    return status;
}

/* ---- comparison ---- */

static mha_status compare_models(sharing *s, const mha_model *model, mha_error *err)
{
    char text[17] = "";
    if (s->compared == model) return MHA_OK;
    /* In a divided model, the fingerprint is collective. */
    mha_status status = passed(s, mha_model_fingerprint(model, text, err));
    if (s->broken) return status;
    status = mha_cluster_agree(s->cluster, status, err);
    if (status != MHA_OK) return status;
    s->compared = model;
    return mha_cluster_same(s->cluster, "the model and the CPU instruction set", text, sizeof text, err);
}

/* Agrees that no rank has failed. After a failure, all ranks have agreed on the error of the rank that left the
 * command. */
static mha_status meet(sharing *s, mha_error *why)
{
    const mha_status status = mha_cluster_agree(s->cluster, MHA_OK, why);
    s->ended = status != MHA_OK && !mha_cluster_broken(s->cluster);
    if (s->ended) s->failure = *why;
    return status;
}

/* Adds the host to a message of mha_model_open that begins with a rank of the tp group. */
static void name_host(const sharing *s, mha_error *err)
{
    int member, used = 0;
    const mha_cluster_info *info = mha_cluster_describe(s->cluster);
    const mha_error given = *err;
    if (sscanf(given.message, "rank %d: %n", &member, &used) != 1 || used == 0) return;
    const int rank = info->rank - info->tp_rank + member;
    snprintf(err->message, sizeof err->message, "rank %d (%s): %.900s", rank, mha_cluster_host(s->cluster, rank),
             given.message + used);
}

/* Opens a model or, with --tp, this rank's part of it. */
static mha_status open(void *user, mha_ctx *ctx, const char *folder, const mha_model_options *options,
                       mha_model **model, mha_error *err)
{
    sharing *s = user;
    mha_model_options all = *options;
    mha_error why = {0};
    mha_status status = MHA_OK;
    *model = NULL;
    if (s->divides_models) {
        all.ranks = mha_cluster_model_ranks(s->cluster);
        status = meet(s, &why);
    }
    if (status == MHA_OK) status = mha_model_open(ctx, folder, &all, model, &why);
    if (status == MHA_OK) return MHA_OK;
    if (s->divides_models) name_host(s, &why);
    *err = why;
    return status;
}

/* Begins a text on all ranks: agrees that no rank has failed, and compares the digests of the text and the models. */
static mha_status begin(sharing *s, const mha_model *model, mha_train_digest *digest, mha_error *err)
{
    char text[17];
    mha_error why = {0};
    mha_train_digest_text(digest, text);
    mha_status status = meet(s, &why);
    if (status == MHA_OK) status = mha_cluster_same(s->cluster, "the text", text, sizeof text, &why);
    if (status == MHA_OK) status = compare_models(s, model, &why);
    if (status != MHA_OK) *err = why;
    return status;
}

static mha_status begin_ids(sharing *s, const mha_model *model, const int32_t *ids, int64_t count, mha_error *err)
{
    mha_train_digest digest = {0};
    mha_train_digest_add_number(&digest, (uint64_t)count);
    mha_train_digest_add(&digest, ids, (size_t)count * sizeof *ids);
    return begin(s, model, &digest, err);
}

bool shared_texts_ended(mha_error *err)
{
    if (only.ended) *err = only.failure;
    return only.ended;
}

/* ---- passes ---- */

/* Runs a forward pass that computes the logits of this rank's tokens, and gathers the logits on rank 0. */
static mha_status forward_part(const sharing *s, const mha_model *model, const mha_model_input *input,
                               const mha_model_output *output, float *logits, mha_error *err)
{
    mha_model_output own = *output;
    own.logits = logits;
    const mha_status status = mha_cluster_model_forward(s->cluster, model, s->mode, input, &own, err);
    if (status != MHA_OK || !output->logits) return status;
    return mha_cluster_gather_rows(s->cluster, input->length, (size_t)mha_model_describe(model)->vocab * sizeof *logits,
                                   logits, output->logits, err);
}

static mha_status forward(void *user, const mha_model *model, const mha_model_input *input,
                          const mha_model_output *output, mha_error *err)
{
    sharing *s = user;
    const mha_cluster_info *info = mha_cluster_describe(s->cluster);
    const mha_cluster_part part = mha_cluster_part_of(input->length, info->cp, info->cp_rank);
    const size_t rows = (size_t)(part.length[0] + part.length[1]) + 1, vocab = (size_t)mha_model_describe(model)->vocab;
    float *logits = NULL;
    mha_error why = {.status = MHA_ERR_MEMORY, .message = "out of memory for the logits"};
    mha_status status = begin_ids(s, model, input->ids, input->length, err);
    if (status != MHA_OK) return status;
    if (!mha_cluster_model_divides(s->cluster, model, input->length))
        return passed(s, mha_model_forward(model, input, output, err));
    if (output->logits) logits = calloc(rows, vocab * sizeof *logits);
    status = mha_cluster_agree(s->cluster, output->logits && !logits ? MHA_ERR_MEMORY : MHA_OK, &why);
    if (status == MHA_OK) status = forward_part(s, model, input, output, logits, &why);
    if (!mha_cluster_broken(s->cluster)) free(logits); /* else a transfer may still use it */
    if (status != MHA_OK) *err = why;
    return status;
}

static mha_status score(void *user, const mha_model *model, const int32_t *ids, int64_t count, float *logprob,
                        mha_error *err)
{
    sharing *s = user;
    const mha_status status = begin_ids(s, model, ids, count, err);
    if (status != MHA_OK) return status;
    return passed(s, mha_cluster_model_score(s->cluster, model, s->mode, ids, count, logprob, err));
}

static mha_status embed(void *user, const mha_model *model, const char *const *texts, int64_t count,
                        const mha_embed_options *options, float *out, mha_error *err)
{
    sharing *s = user;
    mha_train_digest digest = {0};
    for (int64_t n = 0; n < count; n++) {
        mha_train_digest_add_number(&digest, strlen(texts[n]));
        mha_train_digest_add(&digest, texts[n], strlen(texts[n]));
    }
    const mha_status status = begin(s, model, &digest, err);
    if (status != MHA_OK) return status;
    return passed(s, mha_cluster_model_embed(s->cluster, model, s->mode, texts, count, options, out, err));
}

static mha_status generate(void *user, const mha_model *model, const mha_prompt *prompts, int64_t count,
                           const mha_generate_options *options, int32_t *out, int64_t *lengths, mha_error *err)
{
    sharing *s = user;
    mha_train_digest digest = {0};
    for (int64_t n = 0; n < count; n++) {
        mha_train_digest_add_number(&digest, (uint64_t)prompts[n].count);
        mha_train_digest_add(&digest, prompts[n].ids, (size_t)prompts[n].count * sizeof *prompts[n].ids);
    }
    const mha_status status = begin(s, model, &digest, err);
    if (status != MHA_OK) return status;
    return passed(s,
                  mha_cluster_model_generate(s->cluster, model, s->mode, prompts, count, options, out, lengths, err));
}

const cli_shared_texts *shared_texts_of(mha_cluster *cluster, mha_cluster_mode mode, bool divides_models)
{
    static const cli_shared_texts texts = {&only, open, forward, score, embed, generate};
    only = (sharing){.cluster = cluster, .mode = mode, .divides_models = divides_models};
    return &texts;
}

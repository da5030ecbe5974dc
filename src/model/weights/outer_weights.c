/* outer_weights.c - the parts of a model outside its layers: embeddings, outer norms, pooler and output head. */
#include "base/ctx.h"
#include "base/error.h"
#include "io/derived_tensor.h"
#include "layer/convolution.h"
#include "layer/repack.h"
#include "model/model_struct.h"
#include "model/weights/rank_parts.h"
#include <string.h>

static mha_status take_norm(mha_model *m, mha__role role, mha_norm *norm, mha_error *err)
{
    mha_matrix part = {0};
    MHA__TRY(mha__weights_part(&m->outer, role, -1, &part, err));
    *norm = mha__model_norm(&m->config, role, &part);
    return MHA_OK;
}

static mha_status take_linear(mha_model *m, mha__role role, int64_t in, mha_activation activation, mha_linear **linear,
                              mha_error *err)
{
    mha_matrix part = {0};
    MHA__TRY(mha__weights_part(&m->outer, role, -1, &part, err));
    if (!part.weight) return MHA_OK;
    return mha_linear_create_stack(m->ctx, in, &part, 1, activation, linear, err);
}

bool mha__model_is_tied(const mha_model *m, mha_model_range rows)
{
    const mha_tensor *words = mha__weights_tensor(&m->outer, MHA__WORDS, -1, false);
    const mha_tensor *head = mha__weights_tensor(&m->outer, MHA__LM_HEAD, -1, false);
    if (!m->config.tied || !words || !head || head == words) return m->config.tied;
    const size_t row = head->bytes / (size_t)m->config.vocab, begin = (size_t)rows.first * row;
    return mha__tensor_same(head, words, begin, (size_t)rows.count * row);
}

/* Finds the part of a role whose rows are tokens. */
static mha_status take_vocabulary(mha_model *m, mha__role role, mha_matrix *part, mha_error *err)
{
    return m->ranks.ranks ? mha__rank_vocabulary(&m->outer, &m->ranks, role, part, err)
                          : mha__weights_part(&m->outer, role, -1, part, err);
}

static bool is_stored(const mha_model *m, mha__role role)
{
    return mha__weights_tensor(&m->outer, role, -1, false) != NULL;
}

/* Finds the parts of an encoder between its last layer and the output matrix: if the first part exists, all parts must
 * exist. The bias is read under the decoder's name if the checkpoint has it; as in transformers, its other name is used
 * only if the weights are tied. */
static mha_status take_transform(mha_model *m, mha_matrix *bias, mha_error *err)
{
    if (m->config.tied && !is_stored(m, MHA__LM_BIAS)) m->lm_bias = MHA__LM_TIED_BIAS;
    if (m->config.head_normed && !is_stored(m, MHA__LM_NORM)) return mha__weights_missing(&m->outer, MHA__LM_NORM, err);
    if (!is_stored(m, m->lm_bias)) return mha__weights_missing(&m->outer, m->lm_bias, err);
    MHA__TRY(take_norm(m, MHA__LM_NORM, &m->lm_norm, err));
    MHA__TRY(take_linear(m, MHA__LM_DENSE, m->config.hidden, m->config.head_activation, &m->lm_dense, err));
    return m->config.discriminator ? mha__weights_part(&m->outer, m->lm_bias, -1, bias, err)
                                   : take_vocabulary(m, m->lm_bias, bias, err);
}

/* Finds the output matrix of an image classifier. */
static mha_status take_classifier(mha_model *m, mha_error *err)
{
    mha_matrix head = {0}, bias = {0};
    if (!is_stored(m, MHA__LM_HEAD)) return MHA_OK;
    if (!is_stored(m, MHA__LM_BIAS)) return mha__weights_missing(&m->outer, MHA__LM_BIAS, err);
    MHA__TRY(mha__weights_part(&m->outer, MHA__LM_HEAD, -1, &head, err));
    MHA__TRY(mha__weights_part(&m->outer, MHA__LM_BIAS, -1, &bias, err));
    head.bias = bias.weight;
    return m->outer.check_only
               ? MHA_OK
               : mha_linear_create_stack(m->ctx, m->config.hidden, &head, 1, MHA_ACT_NONE, &m->lm_head, err);
}

/* Returns true if a model whose tensors have these names may lack its head. In transformers, LlamaModel has names
 * without a prefix, and OPTModel a shorter prefix than the model with a head; T5Model and the model with a head have
 * the same names. */
static bool headless_names(const mha_model *m)
{
    const mha__family *family = m->config.family;
    return !*m->outer.prefix || (family->causal && m->outer.prefix != family->prefixes[0]);
}

/* Returns true if the family has heads with a bias (Phi), and the checkpoint has neither the bias nor a matrix. */
static bool lacks_bias(const mha_model *m)
{
    const mha__part *bias = &m->config.family->parts[MHA__LM_BIAS];
    return bias->kind != MHA__PART_ABSENT && !bias->optional && !is_stored(m, MHA__LM_BIAS) &&
           !is_stored(m, MHA__LM_HEAD);
}

/* Finds the output matrix: the word embeddings, or a separate matrix. An encoder has logits only if the parts before
 * the matrix exist. A decoder that was saved without its head has no logits, unless its output matrix is the word
 * embeddings. */
static mha_status take_head(mha_model *m, mha_error *err)
{
    const mha__config *c = &m->config;
    mha_matrix head = m->words, bias = {0};
    m->lm_bias = MHA__LM_BIAS;
    if (c->channels) return take_classifier(m, err);
    if (c->family->parts[MHA__LM_HEAD].kind == MHA__PART_ABSENT && !c->tied) return MHA_OK;
    if (!c->family->causal && !is_stored(m, MHA__LM_DENSE)) return MHA_OK;
    if (!c->family->causal) MHA__TRY(take_transform(m, &bias, err));
    const void *const kept = m->outer.converted;
    /* Like transformers, does not tie weights if the file contains an output matrix with different elements. Ranks have
     * already compared them (mha__rank_parts_same). */
    m->config.tied = m->ranks.ranks ? m->tied_on_ranks : mha__model_is_tied(m, (mha_model_range){0, c->vocab});
    if (!c->tied) MHA__TRY(take_vocabulary(m, MHA__LM_HEAD, &head, err));
    if (headless_names(m) && ((!c->tied && !head.out) || lacks_bias(m))) return MHA_OK;
    if (!c->tied && !head.out) return mha__weights_missing(&m->outer, MHA__LM_HEAD, err);
    if (c->family->causal) MHA__TRY(take_vocabulary(m, m->lm_bias, &bias, err));
    if (c->family->causal) MHA__TRY(take_linear(m, MHA__LM_DENSE, c->hidden, MHA_ACT_NONE, &m->lm_dense, err));
    if (m->outer.check_only) return MHA_OK;
    head.bias = bias.weight;
    const mha_status status = mha_linear_create_stack(m->ctx, c->head_width, &head, 1, MHA_ACT_NONE, &m->lm_head, err);
    mha__weights_release_after(&m->outer, kept); /* the output matrix has been packed */
    mha__weights_rest(&m->outer, MHA__WORDS, -1);
    mha__weights_rest(&m->outer, MHA__LM_HEAD, -1);
    return status;
}

/* Computes the embeddings of relative positions that the layers read. */
static mha_status norm_distances(mha_model *m, mha_error *err)
{
    const int64_t rows = m->config.distance_rows, E = m->config.hidden;
    const size_t bytes = (size_t)(rows * E) * sizeof(float);
    if (!m->distances.weight) return MHA_OK;
    if (!m->positions_normed) m->positions_normed = mha__alloc(m->ctx, bytes);
    if (!m->positions_normed) return mha__no_memory(err, bytes, "the embeddings of relative positions");
    memcpy(m->positions_normed, m->distances.weight, bytes);
    if (!m->distances_norm.weight) return MHA_OK;
    return mha_norm_forward(m->ctx, &m->distances_norm, rows, E, m->positions_normed, NULL, m->positions_normed, err);
}

/* Finds the parts of models of images, and those after the last layer of CLIP. */
static mha_status take_vision(mha_model *m, mha_error *err)
{
    const mha__config *c = &m->config;
    MHA__TRY(take_linear(m, MHA__PATCHES, mha__patch_width(c), MHA_ACT_NONE, &m->patches, err));
    MHA__TRY(mha__weights_part(&m->outer, MHA__CLASS_TOKEN, -1, &m->class_token, err));
    MHA__TRY(take_norm(m, MHA__POOL_NORM, &m->pool_norm, err));
    MHA__TRY(take_linear(m, MHA__PROJECTION, c->hidden, MHA_ACT_NONE, &m->projection, err));
    return mha__weights_part(&m->outer, MHA__LOGIT_SCALE, -1, &m->logit_scale, err);
}

static mha_status take_convolutions(mha_model *m, mha_error *err)
{
    const int64_t channels[] = {m->config.mel_bins, m->config.hidden};
    for (int n = 0; n < 2; n++)
        MHA__TRY(take_linear(m, n ? MHA__SECOND_CONVOLUTION : MHA__FIRST_CONVOLUTION, MHA__TAPS * channels[n],
                             MHA_ACT_GELU, &m->convolution[n], err));
    return MHA_OK;
}

mha_status mha__model_take_outer(mha_model *m, mha_error *err)
{
    MHA__TRY(take_vocabulary(m, MHA__WORDS, &m->words, err));
    MHA__TRY(take_vision(m, err));
    MHA__TRY(take_convolutions(m, err));
    MHA__TRY(mha__weights_part(&m->outer, MHA__POSITIONS, -1, &m->positions, err));
    MHA__TRY(mha__weights_part(&m->outer, MHA__TYPES, -1, &m->types, err));
    MHA__TRY(mha__weights_part(&m->outer, MHA__RELATIVE, -1, &m->relative, err));
    MHA__TRY(mha__weights_part(&m->outer, MHA__DISTANCES, -1, &m->distances, err));
    MHA__TRY(take_norm(m, MHA__DISTANCES_NORM, &m->distances_norm, err));
    MHA__TRY(norm_distances(m, err));
    MHA__TRY(take_norm(m, MHA__EMBED_NORM, &m->embed_norm, err));
    MHA__TRY(take_norm(m, MHA__FINAL_NORM, &m->final_norm, err));
    MHA__TRY(take_linear(m, MHA__EMBED_MAP, m->config.embed_width, MHA_ACT_NONE, &m->embed_map, err));
    MHA__TRY(take_linear(m, MHA__POOLER, m->config.hidden, MHA_ACT_TANH, &m->pooler, err));
    return take_head(m, err);
}

/* ---- repacking of changed weights ---- */

bool mha__model_uses(const mha_model *m, mha__role role)
{
    if (role == MHA__LM_HEAD) return m->lm_head && !m->config.tied;
    if (role == MHA__LM_BIAS || role == MHA__LM_TIED_BIAS) return m->lm_head && role == m->lm_bias;
    if (role == MHA__LM_DENSE || role == MHA__LM_NORM) return m->lm_head != NULL;
    return true;
}

const mha_tensor *mha__model_tensor(const mha_model *m, const mha__tensor_step *at)
{
    return mha__model_uses(m, at->role) ? mha__weights_tensor(&m->outer, at->role, at->layer, at->bias) : NULL;
}

static void adopt(mha_model *m, const mha__weights *weights, const mha_matrix *part)
{
    const mha__config *c = &m->config;
    mha_matrix head = c->tied ? part[MHA__WORDS] : part[MHA__LM_HEAD];
    head.bias = part[m->lm_bias].weight;
    mha__weights_release(&m->outer); /* the converted tensors in `weights` replace the old ones */
    m->outer.converted = weights->converted;
    m->words = part[MHA__WORDS];
    m->positions = part[MHA__POSITIONS];
    m->types = part[MHA__TYPES];
    m->relative = part[MHA__RELATIVE];
    m->distances = part[MHA__DISTANCES];
    m->distances_norm = mha__model_norm(c, MHA__DISTANCES_NORM, &part[MHA__DISTANCES_NORM]);
    (void)norm_distances(m, NULL); /* cannot fail, since the memory exists */
    m->embed_norm = mha__model_norm(c, MHA__EMBED_NORM, &part[MHA__EMBED_NORM]);
    m->final_norm = mha__model_norm(c, MHA__FINAL_NORM, &part[MHA__FINAL_NORM]);
    m->lm_norm = mha__model_norm(c, MHA__LM_NORM, &part[MHA__LM_NORM]);
    for (int n = 0; n < 2; n++)
        if (m->convolution[n]) mha__linear_repack(m->convolution[n], &part[MHA__FIRST_CONVOLUTION + n], 1);
    if (m->embed_map) mha__linear_repack(m->embed_map, &part[MHA__EMBED_MAP], 1);
    m->class_token = part[MHA__CLASS_TOKEN];
    m->logit_scale = part[MHA__LOGIT_SCALE];
    m->pool_norm = mha__model_norm(c, MHA__POOL_NORM, &part[MHA__POOL_NORM]);
    if (m->patches) mha__linear_repack(m->patches, &part[MHA__PATCHES], 1);
    if (m->projection) mha__linear_repack(m->projection, &part[MHA__PROJECTION], 1);
    if (m->pooler) mha__linear_repack(m->pooler, &part[MHA__POOLER], 1);
    if (m->lm_dense) mha__linear_repack(m->lm_dense, &part[MHA__LM_DENSE], 1);
    if (m->lm_head) mha__linear_repack(m->lm_head, &head, 1);
}

mha_status mha__model_refresh(mha_model *m, mha_error *err)
{
    mha_matrix part[MHA__FIRST_OF_LAYER] = {0};
    mha__weights weights = m->outer; /* a copy that has its own list of converted tensors */
    weights.converted = NULL;
    mha_status status = MHA_OK;
    for (int role = 0; role < MHA__FIRST_OF_LAYER && status == MHA_OK; role++)
        if (mha__model_uses(m, (mha__role)role))
            status = mha__weights_part(&weights, (mha__role)role, -1, &part[role], err);
    if (status == MHA_OK)
        adopt(m, &weights, part);
    else
        mha__weights_release(&weights);
    for (int64_t layer = 0; layer < m->config.layers && status == MHA_OK; layer++)
        status = mha__model_repack(m, layer, err);
    if (status == MHA_OK && m->vision) status = mha__model_refresh(m->vision, err);
    return status == MHA_OK && m->encoder ? mha__model_refresh(m->encoder, err) : status;
}

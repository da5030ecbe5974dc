/* weight_support.c - determines which circuits are defined for a model. */
#include "base/error.h"
#include "circuits/weights/weight_circuits.h"

static bool has_layer(const mha_model *m, bool (*is)(const mha__layer_attention *))
{
    for (int64_t l = 0; l < m->config.layers; l++)
        if (is(&m->config.attention[l])) return true;
    return false;
}

static bool is_normed(const mha__layer_attention *a)
{
    return a->normed;
}

static bool is_turned(const mha__layer_attention *a)
{
    return a->turned;
}

/* Returns why copying scores are not defined; NULL if they are. */
static const char *copying_reason(const mha_model *m)
{
    if (!m->config.pre_norm) return "norms after each layer lie between a head and the output matrix";
    if (m->config.channels) return "the model reads images";
    if (!m->lm_head) return "the checkpoint has no output matrix";
    if (m->lm_dense) return "a dense layer with an activation lies before the output matrix";
    if (m->embed_map) return "the word embeddings have a linear map to another width";
    if (m->embed_norm.weight) return "the word embeddings are normalized before layer 0";
    return NULL;
}

mha_status mha__circuit_support(const mha_model *m, bool folded, const char *reason[MHA_CIRCUITS], mha_error *err)
{
    const char *family = m->info.family;
    const char *normed = has_layer(m, is_normed) ? "q and k are divided by norms that depend on the text" : NULL;
    if (!m->packed) return mha__fail(err, MHA_ERR_ARG, "weight circuits: model must have been opened with its weights");
    MHA__TRY(mha__model_not_seq2seq(m, "weight circuits: model", err));
    MHA__TRY(mha__model_single_heads(m, "circuits", err));
    if (m->ranks.ranks)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "weight circuits: model must not be divided among processes");
    if (m->config.family->latent)
        return mha__fail(
            err, MHA_ERR_UNSUPPORTED,
            "weight circuits: model must not have latent attention (got %s, whose keys and values pass a norm "
            "inside the projection)",
            family);
    if (folded && !m->config.pre_norm)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "weight circuits: raw must be set for a post-norm model (got %s, where two norms lie between "
                         "layers, so that none can be folded into the weights)",
                         family);
    reason[MHA_CIRCUIT_QK] = reason[MHA_CIRCUIT_COMPOSE_Q] = reason[MHA_CIRCUIT_COMPOSE_K] = normed;
    reason[MHA_CIRCUIT_QK_PREVIOUS] = normed ? normed : has_layer(m, is_turned) ? NULL : "it has no rotary positions";
    reason[MHA_CIRCUIT_COPYING] = copying_reason(m);
    return MHA_OK;
}

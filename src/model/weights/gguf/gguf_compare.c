/* gguf_compare.c - see gguf_save.h. */
#include "base/error.h"
#include "model/weights/gguf/gguf_save.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- before writing ---- */

static mha_status refuse(const mha__gguf_arch *arch, const char *key, const char *rule, int64_t layer, int64_t got,
                         mha_error *err)
{
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "config.json: %s must be %s in a GGUF file of architecture %s (got %lld in "
                     "layer %lld)",
                     key, rule, arch->name, (long long)got, (long long)layer);
}

/* Checks the head counts of an encoder-decoder, or of one side of it, since a file has one head count for all kinds of
 * heads and a column of relative positions for each head. */
static mha_status check_sides(const mha_model *m, const mha__gguf_arch *arch, mha_error *err)
{
    const mha__config *c = &m->config;
    const int64_t heads = c->layer_heads[0];
    for (int64_t l = 0; l < c->layers && m->encoder; l++)
        if (c->cross_heads[l] != heads)
            return refuse(arch, "head counts of the cross-attention", "those of the decoder", l, c->cross_heads[l],
                          err);
    if (c->buckets && c->relative_heads != heads)
        return refuse(arch, "heads of a side", "equal in all layers", 0, c->relative_heads, err);
    if (!m->encoder) return MHA_OK;
    MHA__TRY(mha__gguf_expressible(m->encoder, arch, err));
    if (m->encoder->config.layer_heads[0] == heads) return MHA_OK;
    return refuse(arch, "head counts of the encoder", "those of the decoder", 0, m->encoder->config.layer_heads[0],
                  err);
}

mha_status mha__gguf_expressible(const mha_model *m, const mha__gguf_arch *arch, mha_error *err)
{
    const mha__config *c = &m->config;
    if (c->own_key)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "config.json: %s must be absent in a GGUF file", c->own_key);
    if (c->family->causal && !c->tied && !mha__weights_tensor(&m->outer, MHA__LM_HEAD, -1, false))
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "model must have an output head in a GGUF file, which has the word embeddings as its head "
                         "otherwise (lm_head.weight is absent)");
    for (int64_t l = 0; l < c->layers; l++) {
        if (c->layer_heads[l] != c->layer_heads[0] || c->layer_k_heads[l] != c->layer_k_heads[0])
            return refuse(arch, "head counts", "equal in all layers", l, c->layer_heads[l], err);
        if (c->layer_k_heads[l] != c->layer_v_heads[l])
            return refuse(arch, "mha.kv_heads", "equal for keys and values", l, c->layer_v_heads[l], err);
    }
    if (!arch->head_width && c->layer_heads[0] * c->head_dim != c->hidden)
        return refuse(arch, "heads times their width", "hidden_size", 0, c->layer_heads[0] * c->head_dim, err);
    if ((arch->bert || arch->gpt2) && c->layer_k_heads[0] != c->layer_heads[0])
        return refuse(arch, "mha.kv_heads", "the head count", 0, c->layer_k_heads[0], err);
    return check_sides(m, arch, err);
}

/* ---- after writing ---- */

/* Real fields of the config; files store them as f32. */
static const struct {
    const char *key;
    size_t offset;
} reals[] = {
    {"the epsilon of norms", offsetof(mha__config, eps)},
    {"final_logit_softcapping", offsetof(mha__config, logit_cap)},
    {"residual_multiplier", offsetof(mha__config, residual_multiplier)},
    {"logits_scaling", offsetof(mha__config, logit_divisor)},
    {"swiglu_alpha", offsetof(mha__config, swiglu_alpha)},
    {"swiglu_limit", offsetof(mha__config, swiglu_limit)},
};

/* Integer fields of the config. */
static const struct {
    const char *key;
    size_t offset;
} integers[] = {
    {"vocab_size", offsetof(mha__config, vocab)},
    {"max_position_embeddings", offsetof(mha__config, max_positions)},
    {"hidden_size", offsetof(mha__config, hidden)},
    {"num_hidden_layers", offsetof(mha__config, layers)},
    {"head_dim", offsetof(mha__config, head_dim)},
    {"intermediate_size", offsetof(mha__config, intermediate)},
    {"the number of experts", offsetof(mha__config, experts)},
    {"num_experts_per_tok", offsetof(mha__config, experts_chosen)},
    {"moe_intermediate_size", offsetof(mha__config, expert_width)},
    {"relative_attention_num_buckets", offsetof(mha__config, buckets)},
    {"relative_attention_max_distance", offsetof(mha__config, max_distance)},
    {"decoder_start_token_id", offsetof(mha__config, start)},
};

static bool nearly(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(a);
}

static mha_status differs(const char *key, const char *arch, double must, double got, mha_error *err)
{
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "config.json: %s must be %g in a GGUF file of architecture %s (got %g)",
                     key, must, arch, got);
}

static mha_status compare_fields(const mha__config *a, const mha__config *b, const char *arch, mha_error *err)
{
    for (size_t n = 0; n < sizeof integers / sizeof *integers; n++) {
        int64_t x, y;
        memcpy(&x, (const char *)a + integers[n].offset, sizeof x);
        memcpy(&y, (const char *)b + integers[n].offset, sizeof y);
        if (x != y) return differs(integers[n].key, arch, (double)y, (double)x, err);
    }
    for (size_t n = 0; n < sizeof reals / sizeof *reals; n++) {
        double x, y;
        memcpy(&x, (const char *)a + reals[n].offset, sizeof x);
        memcpy(&y, (const char *)b + reals[n].offset, sizeof y);
        if (!nearly(x, y)) return differs(reals[n].key, arch, y, x, err);
    }
    if (a->activation != b->activation)
        return differs("the activation (as a number of mha_activation)", arch, b->activation, a->activation, err);
    if (a->experts_normed != b->experts_normed)
        return differs("norm_topk_prob", arch, b->experts_normed, a->experts_normed, err);
    if (a->scaled_head != b->scaled_head)
        return differs("scale_decoder_outputs", arch, b->scaled_head, a->scaled_head, err);
    if (a->embed_scale != b->embed_scale)
        return differs("the scale of embeddings", arch, b->embed_scale, a->embed_scale, err);
    return MHA_OK;
}

/* Checks that the written model ends texts with the same tokens. */
static mha_status compare_eos(const mha__config *a, const mha__config *b, const char *arch, mha_error *err)
{
    for (int64_t n = 0; n < a->eos_count; n++) {
        int64_t k = 0;
        while (k < b->eos_count && b->eos[k] != a->eos[n])
            k++;
        if (k == b->eos_count)
            return mha__fail(err, MHA_ERR_UNSUPPORTED,
                             "config.json: eos_token_id must be at most 3 tokens, the first of which is the token that "
                             "the tokenizer appends, if any, in a GGUF file of architecture %s (got token %d, which "
                             "the file cannot store)",
                             arch, a->eos[n]);
    }
    return MHA_OK;
}

static double scale_of(const mha__config *c, int64_t layer)
{
    return c->attention[layer].scale != 0 ? c->attention[layer].scale : 1 / sqrt((double)c->head_dim);
}

/* Returns the window of a layer; 0 if it covers all positions. */
static double window_of(const mha__config *c, int64_t layer)
{
    const int64_t window = c->attention[layer].window;
    return window < c->max_positions ? (double)window : 0;
}

static mha_status compare_layer(const mha__config *a, const mha__config *b, int64_t l, const char *arch, mha_error *err)
{
    const mha__layer_attention *x = &a->attention[l], *y = &b->attention[l];
    if (a->layer_heads[l] != b->layer_heads[l] || a->layer_k_heads[l] != b->layer_k_heads[l])
        return differs("num_attention_heads", arch, b->layer_heads[l], a->layer_heads[l], err);
    if (window_of(a, l) != window_of(b, l))
        return differs("sliding_window", arch, window_of(b, l), window_of(a, l), err);
    if (!nearly(scale_of(a, l), scale_of(b, l)))
        return differs("the scale of scores", arch, scale_of(b, l), scale_of(a, l), err);
    if (!nearly(x->softcap, y->softcap)) return differs("attn_logit_softcapping", arch, y->softcap, x->softcap, err);
    if (x->turned != y->turned) return differs("the rotation of q and k", arch, y->turned, x->turned, err);
    if (x->local != y->local) return differs("the rotation of sliding layers", arch, y->local, x->local, err);
    if (x->alibi != y->alibi) return differs("alibi", arch, y->alibi, x->alibi, err);
    if (a->sparse[l] != b->sparse[l]) return differs("experts of a layer", arch, b->sparse[l], a->sparse[l], err);
    if (x->normed != y->normed) return differs("the norms of q and k", arch, y->normed, x->normed, err);
    return MHA_OK;
}

/* Compares the frequencies of short and of long texts. */
static mha_status compare_rope(const mha_rope_options *a, const mha_rope_options *b, int64_t positions,
                               const char *arch, mha_error *err)
{
    const int64_t lengths[] = {1, positions};
    if (!a->head_dim && !b->head_dim) return MHA_OK;
    if (a->head_dim != b->head_dim || a->kind == MHA_ROPE_DYNAMIC)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "config.json: rope_type must not be dynamic in a GGUF file of architecture %s", arch);
    for (int n = 0; n < 2; n++) {
        double x[MHA_HEAD_DIM_MAX / 2], y[MHA_HEAD_DIM_MAX / 2], gain[2];
        const int64_t pairs = (a->rotary_dim ? a->rotary_dim : a->head_dim) / 2;
        MHA__TRY(mha_rope_frequencies(a, lengths[n], x, &gain[0], err));
        MHA__TRY(mha_rope_frequencies(b, lengths[n], y, &gain[1], err));
        if (!nearly(gain[0], gain[1])) return differs("the factor of the rotation", arch, gain[1], gain[0], err);
        for (int64_t i = 0; i < pairs; i++)
            if (!nearly(x[i], y[i])) return differs("a frequency of the rotation", arch, y[i], x[i], err);
    }
    return MHA_OK;
}

mha_status mha__gguf_compare(const mha_model *model, const mha_model *written, const char *arch, mha_error *err)
{
    const mha__config *a = &model->config, *b = &written->config;
    MHA__TRY(compare_fields(a, b, arch, err));
    MHA__TRY(compare_eos(a, b, arch, err));
    for (int64_t l = 0; l < a->layers; l++)
        MHA__TRY(compare_layer(a, b, l, arch, err));
    if (model->encoder) MHA__TRY(mha__gguf_compare(model->encoder, written->encoder, arch, err));
    MHA__TRY(compare_rope(&a->rope, &b->rope, a->max_positions, arch, err));
    return compare_rope(&a->local_rope, &b->local_rope, a->max_positions, arch, err);
}

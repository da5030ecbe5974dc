/* rank_parts.c - see rank_parts.h: which part a process holds, and the vocabulary. */
#include "model/weights/rank_parts.h"

#include "base/error.h"
#include "base/size.h"
#include "model/weights/tensor_pieces.h"

/* Returns the greatest common divisor of a >= 0 and b > 0. */
static int64_t divisor(int64_t a, int64_t b)
{
    return a == 0 ? b : divisor(b % a, a);
}

/* Returns the number of key (or value) heads that the heads [first, first + count) read, if `share` heads share one.
 * Each of them is read by the same number of heads, as the operator requires. */
static int64_t heads_read(int64_t first, int64_t count, int64_t share)
{
    if (first / share == (first + count - 1) / share) return 1;
    return count / divisor(first, divisor(count, share));
}

mha__layer_part mha__layer_part_of(const mha_model *m, int64_t layer)
{
    const mha__config *c = &m->config;
    const int64_t H = c->layer_heads[layer];
    mha_model_range heads = mha__own_range(&m->ranks, H), columns = mha__own_range(&m->ranks, c->intermediate);
    if (heads.count == 0) heads = (mha_model_range){mha__min64(heads.first, H - 1), 1};
    if (columns.count == 0) columns = (mha_model_range){mha__min64(columns.first, c->intermediate - 1), 1};
    mha__layer_part p = {.head = heads.first, .heads = heads.count, .column = columns.first, .columns = columns.count};
    p.k_heads = heads_read(p.head, p.heads, H / c->layer_k_heads[layer]);
    p.v_heads = heads_read(p.head, p.heads, H / c->layer_v_heads[layer]);
    p.kv_heads = mha__common_multiple(p.k_heads, p.v_heads);
    return p;
}

int64_t mha__model_kv_heads(const mha_model *m, int64_t layer)
{
    return m->ranks.ranks ? mha__layer_part_of(m, layer).kv_heads : m->config.layer_kv_heads[layer];
}

mha_status mha__rank_config_check(const mha__config *c, mha_error *err)
{
    const int64_t choosing = mha__config_choosing(c);
    const char *const what = c->family->one_side               ? "is an encoder-decoder"
                             : c->channels || c->family->pools ? "reads images"
                             : c->buckets || c->distances      ? "has relative positions"
                             : c->convolved                    ? "has a convolution"
                             : c->family->latent               ? "has latent attention"
                             : c->discriminator                ? "is a discriminator"
                             : c->family->whole_norms          ? "normalizes all heads together"
                             : mha__config_head_gains(c)       ? "normalizes heads with weights per head"
                             : c->experts                      ? "has layers of experts"
                                                               : NULL;
    if (what)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "ranks must be NULL for a model that %s (got model_type %s)", what,
                         c->family->name);
    if (choosing >= 0)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "ranks must be NULL for a model that selects heads per text (got layer %lld)",
                         (long long)choosing);
    if (c->vocab < MHA_RANK_GROUPS)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "vocab_size must be at least %d with ranks (got %lld)",
                         MHA_RANK_GROUPS, (long long)c->vocab);
    return MHA_OK;
}

mha_status mha__rank_vocabulary(mha__weights *weights, const mha_model_ranks *ranks, mha__role role, mha_matrix *part,
                                mha_error *err)
{
    const mha_tensor *tensor = mha__weights_tensor(weights, role, -1, false);
    mha__weights checked = *weights;
    checked.check_only = true;
    MHA__TRY(mha__weights_part(&checked, role, -1, part, err));
    weights->parameters = checked.parameters;
    weights->bytes = checked.bytes;
    weights->dtype = checked.dtype;
    if (!part->out) return MHA_OK;
    const mha_model_range own = mha__own_range(ranks, part->out);
    part->out = own.count;
    if (weights->check_only) return MHA_OK;
    return mha__tensor_read_pieces(weights, tensor,
                                   &(mha__tensor_pieces){.count = 1, .length = own.count, .start = &own.first},
                                   &part->weight, err);
}

/* config_seq2seq.c - reads what only encoder-decoders and models with relative positions have. */
#include "base/error.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"

/* ---- relative positions ---- */

/* Checks that buckets of T5 exist on both sides, and that distances beyond the exact buckets have a range. */
static mha_status check_buckets(const mha__json_obj *root, const mha__config *c, mha_error *err)
{
    enum { MIN = 4 }; /* an exact and a logarithmic bucket per sign */
    if (c->used_buckets < MIN)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: relative_attention_num_buckets must be at least %d (got %lld)",
                         root->file, MIN, (long long)c->used_buckets);
    if (c->max_distance > c->used_buckets / 2) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT,
                     "%s: relative_attention_max_distance must be above half of relative_attention_num_buckets = %lld "
                     "(got %lld)",
                     root->file, (long long)c->used_buckets, (long long)c->max_distance);
}

mha_status mha__config_relative(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    if (!c->buckets) return MHA_OK;
    if (c->max_distance) {
        c->used_buckets = c->buckets;
        return check_buckets(root, c, err);
    }
    c->used_buckets = MHA__MPNET_BUCKETS;
    c->max_distance = MHA__MPNET_DISTANCE;
    if (c->buckets >= MHA__MPNET_BUCKETS) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: relative_attention_num_buckets must be at least %d (got %lld)",
                     root->file, MHA__MPNET_BUCKETS, (long long)c->buckets);
}

/* ---- encoder-decoders ---- */

mha_status mha__config_one_side(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    static const char *const keys[] = {"mha.kv_heads", "mha.attention", "mha.feed_forward"};
    if (!c->family->one_side) return MHA_OK;
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
        if (mha__json_has(root, keys[n]))
            return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must be absent, since %s is an encoder-decoder",
                             root->file, keys[n], c->family->name);
    if (!c->family->heads_key && mha__json_has(root, "mha.original_heads"))
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "%s: mha.original_heads must be absent, since the width of a head of %s depends on the head "
                         "count",
                         root->file, c->family->name);
    c->own_words = !c->shared_words;
    if (c->own_words && c->family->causal && c->decoder_vocab) c->vocab = c->decoder_vocab;
    if (c->padding >= c->vocab) c->padding = -1; /* such as the default of a config without the key */
    if (c->pad < 0 || c->pad >= c->vocab) c->pad = c->padding;
    if (c->start < c->vocab) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT,
                     "%s: decoder_start_token_id must be below the vocabulary size %lld (got %lld)", root->file,
                     (long long)c->vocab, (long long)c->start);
}

/* config_distances.c - reads the relative positions of DeBERTa, and its convolution. */
#include "base/error.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"
#include <string.h>

#define TYPES "pos_att_type"

/* Sets the term called `name`, a string of `bytes` bytes. Returns false if there is no such term. */
static bool set_term(mha__config *c, const char *name, size_t bytes)
{
    while (bytes && *name == ' ')
        name++, bytes--;
    while (bytes && name[bytes - 1] == ' ')
        bytes--;
    const bool key = bytes == 3 && memcmp(name, "c2p", 3) == 0, query = bytes == 3 && memcmp(name, "p2c", 3) == 0;
    c->key_positions |= key;
    c->query_positions |= query;
    return key || query;
}

/* Reads the terms: a list, or a string in which "|" separates them. */
static mha_status read_terms(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    static const char want[] = "\"c2p\" or \"p2c\"";
    const mha__json *given = mha__json_get(root->json, TYPES), *list = NULL;
    if (!mha__json_is(given, MHA__JSON_STRING)) {
        MHA__TRY(mha__json_array(root, TYPES, MHA__OPTIONAL, &list, err));
        for (mha__json_step i = {0}; mha__json_each(list, &i);)
            if (!set_term(c, mha__json_as_text(i.value), mha__json_bytes(i.value)))
                return mha__json_refuse_item(root, TYPES, i.index, want, err);
        return MHA_OK;
    }
    for (const char *p = mha__json_as_text(given); p;) {
        const char *bar = strchr(p, '|');
        if (!set_term(c, p, bar ? (size_t)(bar - p) : strlen(p)))
            return mha__json_refuse(root, TYPES, "names \"c2p\" and \"p2c\", separated by |", err);
        p = bar ? bar + 1 : NULL;
    }
    return MHA_OK;
}

/* Reads the ranges of distances. */
static mha_status read_ranges(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    int64_t max = -1, buckets = -1;
    MHA__TRY(mha__json_int(root, "max_relative_positions", MHA__OPTIONAL, -MHA__DIM, MHA__DIM, &max, err));
    MHA__TRY(mha__json_int(root, "position_buckets", MHA__OPTIONAL, -MHA__DIM, MHA__DIM, &buckets, err));
    c->distance_max = max < 1 ? c->max_positions : max;
    c->distance_buckets = buckets > 0 ? buckets : 0;
    c->distance_span = buckets > 0 ? buckets : c->distance_max;
    c->distance_rows = 2 * c->distance_span;
    if (buckets <= 0 || (buckets > 1 && buckets / 2 < c->distance_max - 1)) return MHA_OK;
    return mha__fail(
        err, MHA_ERR_FORMAT,
        "%s: position_buckets must be at least 2 and less than twice the greatest distance, %lld (got %lld)",
        root->file, (long long)c->distance_max - 1, (long long)buckets);
}

/* Checks the convolution parallel to the first layer. An even number of taps would change the length of the text. */
static mha_status check_convolution(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    c->convolved = c->conv_taps > 0;
    if (!c->convolved) return MHA_OK;
    if (c->conv_taps % 2 == 0)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: conv_kernel_size must be odd, or 0 (got %lld)", root->file,
                         (long long)c->conv_taps);
    if (c->hidden % c->conv_groups != 0)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: conv_groups must divide hidden_size = %lld (got %lld)", root->file,
                         (long long)c->hidden, (long long)c->conv_groups);
    c->conv_channels = c->hidden / c->conv_groups;
    if (c->conv_taps <= INT32_MAX / c->conv_channels) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT,
                     "%s: conv_kernel_size * hidden_size / conv_groups must be at most 2^31-1 (got %lld * %lld)",
                     root->file, (long long)c->conv_taps, (long long)c->conv_channels);
}

/* Rejects embeddings that are projected before their norm. */
static mha_status check_embeddings(const mha__json_obj *root, const mha__config *c, mha_error *err)
{
    int64_t width = c->hidden;
    MHA__TRY(mha__json_dim(root, "embedding_size", MHA__OPTIONAL, MHA__DIM, &width, err));
    if (width == c->hidden) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: embedding_size must be hidden_size = %lld (got %lld)", root->file,
                     (long long)c->hidden, (long long)width);
}

mha_status mha__config_distances(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    const char *norm = "none";
    if (!c->family->distances) return MHA_OK;
    MHA__TRY(check_convolution(root, c, err));
    MHA__TRY(check_embeddings(root, c, err));
    MHA__TRY(read_terms(root, c, err));
    MHA__TRY(mha__json_string(root, "norm_rel_ebd", MHA__OPTIONAL, &norm, NULL, err));
    c->query_scalar = (double)c->head_dim * (1 + c->key_positions + c->query_positions);
    c->typed_input = c->type_vocab > 0;
    c->other_head = !c->other_head; /* read from "legacy" */
    c->tied |= c->other_head;       /* transformers computes these logits with the word embeddings in any case */
    if (!c->distances) return MHA_OK;
    c->distances_normed = strstr(norm, "layer_norm") != NULL;
    c->pos_key = c->key_positions && !c->own_positions;
    c->pos_query = c->query_positions && !c->own_positions;
    return read_ranges(root, c, err);
}

/* config_token_rules.c - reads the rules for single tokens of generated text, and the heads that align text with audio
 * (Whisper). */
#include "base/error.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"

/* Reads a list of tokens. Tokens outside the vocabulary are never generated anyway. */
static mha_status take_tokens(const mha__json_obj *o, const char *key, int64_t vocab, int32_t *tokens, int64_t *count,
                              mha_error *err)
{
    const mha__json *list = NULL;
    MHA__TRY(mha__json_array(o, key, MHA__OPTIONAL, &list, err));
    if (list && mha__json_size(list) > MHA__SUPPRESSED)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must have at most %d token ids (got %zu)", o->file, key,
                         MHA__SUPPRESSED, mha__json_size(list));
    for (size_t i = 0; list && i < mha__json_size(list); i++) {
        const mha__json *item = mha__json_item(list, i);
        const int64_t id = mha__json_as_int(item);
        if (!mha__json_is(item, MHA__JSON_INTEGER)) return mha__json_refuse_item(o, key, i, "a token id", err);
        if (id >= 0 && id < vocab) tokens[(*count)++] = (int32_t)id;
    }
    return MHA_OK;
}

/* Reads an entry of two integers in 0..first_max and 0..second_max; a null second one is -1. */
static bool take_pair(const mha__json *entry, int64_t first_max, int64_t second_max, int64_t pair[2])
{
    if (!mha__json_is(entry, MHA__JSON_ARRAY) || mha__json_size(entry) != 2) return false;
    const mha__json *first = mha__json_item(entry, 0), *second = mha__json_item(entry, 1);
    const bool none = mha__json_is(second, MHA__JSON_NULL);
    if (!mha__json_is(first, MHA__JSON_INTEGER) || (!none && !mha__json_is(second, MHA__JSON_INTEGER))) return false;
    pair[0] = mha__json_as_int(first);
    pair[1] = none ? -1 : mha__json_as_int(second);
    return pair[0] >= 0 && pair[0] <= first_max && (none || (pair[1] >= 0 && pair[1] <= second_max));
}

static mha_status take_forced(const mha__json_obj *o, mha__config *c, mha_error *err)
{
    static const char *const key = "forced_decoder_ids";
    const mha__json *list = NULL;
    MHA__TRY(mha__json_array(o, key, MHA__OPTIONAL, &list, err));
    for (size_t i = 0; list && i < mha__json_size(list); i++) {
        int64_t pair[2];
        if (!take_pair(mha__json_item(list, i), MHA__FORCED - 1, c->vocab - 1, pair))
            return mha__json_refuse_item(o, key, i, "a position below 16 and a token of the vocabulary or null", err);
        while (c->forced_count <= pair[0])
            c->forced[c->forced_count++] = -1;
        c->forced[pair[0]] = (int32_t)pair[1];
    }
    return MHA_OK;
}

/* Inserts a head after those of the same and of earlier layers. */
static void add_alignment(mha__config *c, const int64_t head[2])
{
    int64_t at = c->alignment_count++;
    for (; at > 0 && c->alignment[at - 1][0] > head[0]; at--) {
        c->alignment[at][0] = c->alignment[at - 1][0];
        c->alignment[at][1] = c->alignment[at - 1][1];
    }
    c->alignment[at][0] = (int32_t)head[0];
    c->alignment[at][1] = (int32_t)head[1];
}

static mha_status take_alignment(const mha__json_obj *o, mha__config *c, mha_error *err)
{
    static const char *const key = "alignment_heads";
    const mha__json *list = NULL;
    MHA__TRY(mha__json_array(o, key, MHA__OPTIONAL, &list, err));
    if (list && mha__json_size(list) > MHA__ALIGNMENT)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must have at most %d heads (got %zu)", o->file, key,
                         MHA__ALIGNMENT, mha__json_size(list));
    for (size_t i = 0; list && i < mha__json_size(list); i++) {
        int64_t head[2];
        if (!take_pair(mha__json_item(list, i), c->layers - 1, c->heads - 1, head) || head[1] < 0)
            return mha__json_refuse_item(o, key, i, "a layer and a head of the decoder", err);
        add_alignment(c, head);
    }
    return MHA_OK;
}

mha_status mha__config_token_rules(const mha__json_obj *o, mha__config *c, mha_error *err)
{
    MHA__TRY(take_tokens(o, "suppress_tokens", c->vocab, c->suppressed, &c->suppressed_count, err));
    MHA__TRY(take_tokens(o, "begin_suppress_tokens", c->vocab, c->late, &c->late_count, err));
    MHA__TRY(take_forced(o, c, err));
    return take_alignment(o, c, err);
}

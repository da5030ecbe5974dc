/* mask_tokens.c - selects and replaces tokens for masked language modeling. */
#include "base/error.h"
#include "base/struct_size.h"
#include "train/data/seeded_draws.h"

/* Returns a uniform random integer in 0 .. n - 1; n must be at most 2^32. */
static int64_t below(uint64_t *state, int64_t n)
{
    return (int64_t)(((mha__splitmix(state) >> 32) * (uint64_t)n) >> 32);
}

static int32_t replaced(const mha_train_mask_options *o, uint64_t *state, int32_t id)
{
    const int64_t draw = below(state, 10);
    return draw < 8 ? o->mask : draw == 8 ? (int32_t)below(state, o->vocab) : id;
}

/* ---- checks ---- */

static mha_status refuse(const char *rule, long long value, mha_error *err)
{
    return mha__fail(err, MHA_ERR_ARG, "mha_train_mask_tokens: %s (got %lld)", rule, value);
}

static mha_status check(const mha_train_mask_options *o, mha_error *err)
{
    const int64_t max = INT64_C(1) << 31;
    if (o->length < 1) return refuse("length must be at least 1", o->length, err);
    if (o->vocab < 1 || o->vocab > max) return refuse("vocab must be from 1 to 2^31", o->vocab, err);
    if (o->mask < 0 || o->mask >= o->vocab) return refuse("mask must be a token id below vocab", o->mask, err);
    if (o->fraction > 0 && o->fraction <= 1) return MHA_OK; /* NaN fails both comparisons */
    return mha__fail(err, MHA_ERR_ARG, "mha_train_mask_tokens: fraction must be in (0, 1] (got %g)", o->fraction);
}

/* ---- selection ---- */

/* Selects `wanted` of the `left` tokens that are not special, and replaces them. Every subset is equally likely (Knuth,
 * volume 2, algorithm S). */
static void select_tokens(const mha_tokenizer *tokenizer, const mha_train_mask_options *o, uint64_t *state,
                          int64_t left, int64_t wanted, int32_t *ids, int32_t *labels)
{
    for (int64_t n = 0; n < o->length; n++) {
        labels[n] = MHA_IGNORE;
        if (mha_tokenizer_is_special(tokenizer, ids[n])) continue;
        if (below(state, left--) >= wanted) continue;
        wanted--;
        labels[n] = ids[n];
        ids[n] = replaced(o, state, ids[n]);
    }
}

mha_status mha_train_mask_tokens(const mha_tokenizer *tokenizer, const mha_train_mask_options *options, int64_t index,
                                 int32_t *ids, int32_t *labels, mha_error *err)
{
    mha_train_mask_options o;
    int64_t left = 0;
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_train_mask_options", err));
    if (!tokenizer || !ids || !labels)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_mask_tokens: %s must not be NULL",
                         !tokenizer ? "tokenizer"
                         : !ids     ? "ids"
                                    : "labels");
    MHA__TRY(check(&o, err));
    for (int64_t n = 0; n < o.length; n++)
        left += !mha_tokenizer_is_special(tokenizer, ids[n]);
    uint64_t state = mha__seeded_state(o.seed, MHA__DRAWS_MASKS, index);
    const int64_t wanted = (int64_t)((double)left * o.fraction + 0.5);
    select_tokens(tokenizer, &o, &state, left, wanted < 1 ? 1 : wanted, ids, labels);
    return MHA_OK;
}

/* mask_texts.c - masks random tokens of tokenized texts, for the loss of masked tokens. */
#include "base/error.h"
#include "heads/data/head_data.h"
#include "mha/rng.h"

enum { MASKED_PERCENT = 15 };

/* The mask token of a tokenizer, and its kind. */
typedef struct mask_token {
    const mha_tokenizer *tokenizer;
    int32_t id;
    uint8_t kind;
} mask_token;

/* Masks tokens of one text; `labels` points to the label of its first token. Returns the number of its tokens. */
static int64_t mask_text(const mask_token *mask, mha_rng *rng, mha_head_data *data, int64_t text, int32_t *labels)
{
    int64_t length;
    const int32_t *ids = mha_head_data_ids(data, text, &length);
    const uint8_t *kinds = mha__head_data_kinds(data, text);
    for (int64_t i = 0; i < length; i++) {
        const bool special = kinds[i] & MHA_TOKEN_SPECIAL || mha_tokenizer_is_special(mask->tokenizer, ids[i]);
        labels[i] = MHA_IGNORE;
        if (mha_rng_next(rng) % 100 >= MASKED_PERCENT || special) continue;
        labels[i] = ids[i];
        mha__head_data_replace(data, text, i, mask->id, mask->kind);
    }
    return length;
}

mha_status mha_head_data_mask(const mha_model *model, const mha_head_data *data, uint64_t seed, int32_t *labels,
                              mha_head_data **out, mha_error *err)
{
    if (out) *out = NULL;
    if (!model || !data || !labels || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_data_mask: %s must not be NULL",
                         !model    ? "model"
                         : !data   ? "data"
                         : !labels ? "labels"
                                   : "out");
    MHA__TRY(mha__head_data_texts(data, err));
    MHA__TRY(mha__head_data_matches(model, data, err));
    mask_token mask = {.tokenizer = mha_model_tokenizer(model)};
    mask.id = mha_tokenizer_mask_id(mask.tokenizer);
    if (mask.id < 0 || mask.id >= mha_model_describe(model)->vocab)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_data_mask: the model's tokenizer must have a mask token");
    MHA__TRY(mha__head_data_copy(data, out, err));
    mask.kind = mha__frame_kind(mha__head_data_frame(*out), mask.tokenizer, mask.id);
    mha_rng rng;
    mha_rng_manual_seed(&rng, seed);
    for (int64_t text = 0; text < mha_head_data_count(data); text++)
        labels += mask_text(&mask, &rng, *out, text, labels);
    mha__head_data_tokenized(*out, mask.tokenizer);
    return MHA_OK;
}

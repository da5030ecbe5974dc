/* mask_texts.c - masks random tokens of tokenized texts, for the loss of masked tokens. */
#include "base/error.h"
#include "heads/data/head_data.h"
#include "mha/rng.h"

enum { MASKED_PERCENT = 15 };

/* Masks tokens of one text; `labels` points to the label of its first token. Returns the number of its tokens. */
static int64_t mask_text(const mha_tokenizer *tokenizer, mha_rng *rng, mha_head_data *data, int64_t text,
                         int32_t *labels)
{
    const int32_t mask = mha_tokenizer_mask_id(tokenizer);
    const uint8_t kind = mha__frame_kind(mha__head_data_frame(data), tokenizer, mask);
    int64_t length;
    const int32_t *ids = mha_head_data_ids(data, text, &length);
    for (int64_t i = 0; i < length; i++) {
        labels[i] = MHA_IGNORE;
        if (mha_rng_next(rng) % 100 >= MASKED_PERCENT || mha_tokenizer_is_special(tokenizer, ids[i])) continue;
        labels[i] = ids[i];
        mha__head_data_replace(data, text, i, mask, kind);
    }
    return length;
}

mha_status mha_head_data_mask(const mha_model *model, const mha_head_data *data, uint64_t seed, int32_t *labels,
                              mha_head_data **out, mha_error *err)
{
    if (out) *out = NULL;
    if (!model || !data || !labels || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_data_mask: arguments must not be NULL");
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    const int32_t mask = mha_tokenizer_mask_id(tokenizer);
    if (mask < 0 || mask >= mha_model_describe(model)->vocab)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_data_mask: the model's tokenizer must have a mask token");
    MHA__TRY(mha__head_data_copy(data, out, err));
    mha_rng rng;
    mha_rng_manual_seed(&rng, seed);
    for (int64_t text = 0; text < mha_head_data_count(data); text++)
        labels += mask_text(tokenizer, &rng, *out, text, labels);
    return MHA_OK;
}

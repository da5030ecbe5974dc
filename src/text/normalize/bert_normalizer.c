/* bert_normalizer.c - implements BertNormalizer.
 *
 * BertNormalizer maps each character separately, so one pass over the text is enough: it drops characters or replaces
 * them by blanks (clean_text), separates Chinese characters, decomposes characters and drops marks (strip_accents), and
 * lower-cases. Only canonical order depends on adjacent characters: characters with a combining class are collected in
 * `run`, and sorted when a character without a combining class follows. */
#include "text/normalize/canonical_order.h"

static mha_status bert_lower(const mha__edit *edit, mha__pass *pass, uint32_t code, uint32_t from)
{
    uint32_t lower[2] = {code, 0};
    int n = edit->bert.lowercase ? mha__char_lower(code, lower) : 1;
    for (int i = 0; i < n; i++)
        MHA__TRY(mha__pass_put(pass, lower[i], from));
    return MHA_OK;
}

/* Sorts the run and writes its characters, except marks. */
static mha_status bert_flush(const mha__edit *edit, mha__pass *pass)
{
    MHA__TRY(mha__order_settle(pass, 0));
    for (size_t i = 0; i < pass->run_count; i++)
        if (!mha__char_is(MHA__CHAR_MARK, pass->run[i].code))
            MHA__TRY(bert_lower(edit, pass, pass->run[i].code, pass->run[i].from));
    pass->run_count = 0;
    return MHA_OK;
}

static mha_status bert_strip(const mha__edit *edit, mha__pass *pass, uint32_t code, uint32_t from)
{
    uint32_t parts[MHA__DECOMPOSED_MAX];
    int n = mha__char_decompose(code, false, parts);
    for (int i = 0; i < n; i++) {
        uint8_t order = (uint8_t)mha__char_order(parts[i]);
        if (order == 0) MHA__TRY(bert_flush(edit, pass));
        MHA__TRY(mha__order_add(pass, (mha__pending){parts[i], from, order, i > 0}));
    }
    return MHA_OK;
}

static mha_status bert_char(const mha__edit *edit, mha__pass *pass, uint32_t code, uint32_t from)
{
    if (edit->bert.clean_text) {
        if (mha__char_is(MHA__CHAR_REMOVED, code)) return MHA_OK;
        if (mha__char_is(MHA__CHAR_SPACE, code)) code = ' ';
    }
    mha_status (*put)(const mha__edit *, mha__pass *, uint32_t, uint32_t) =
        edit->bert.strip_accents ? bert_strip : bert_lower;
    bool apart = edit->bert.chinese && mha__char_is(MHA__CHAR_CHINESE, code);
    if (apart) MHA__TRY(put(edit, pass, ' ', from));
    MHA__TRY(put(edit, pass, code, from));
    return apart ? put(edit, pass, ' ', from) : MHA_OK;
}

mha_status mha__edit_bert(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base)
{
    (void)base;
    pass->run_count = 0;
    for (size_t at = 0, length; at < in->n; at += length) {
        uint32_t code = mha__slice_next(in, at, &length);
        MHA__TRY(bert_char(edit, pass, code, mha__slice_from(in, at)));
    }
    return pass->run_count ? bert_flush(edit, pass) : MHA_OK;
}

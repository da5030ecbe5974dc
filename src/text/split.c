/* split.c - cutting normalized text into words, which the model may not cross; BertPreTokenizer. */
#include "text/tokenizer.h"
#include "text/unicode.h"

/* White space separates and is gone; a punctuation character is a word of its own. */
static mha_status bert_split(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in)
{
    (void)t;
    size_t begin = 0;
    for (size_t at = 0, length; at < in->n; at += length) {
        uint32_t code = mha__slice_next(in, at, &length);
        bool mark = mha__char_is(MHA__CHAR_PUNCTUATION, code);
        if (!mark && !mha__char_is(MHA__CHAR_SPACE, code)) continue;
        MHA__TRY(mha__pass_word(pass, begin, at));
        if (mark) MHA__TRY(mha__pass_word(pass, at, at + length));
        begin = at + length;
    }
    return mha__pass_word(pass, begin, in->n);
}

static mha_status bert_load(mha_tokenizer *t, const mha__json_obj *json, mha_error *err)
{
    (void)t, (void)json, (void)err; /* it has no settings */
    return MHA_OK;
}

static const mha__splitter_kind bert = {{"BertPreTokenizer", bert_load}, bert_split};

mha_status mha__splitter_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err)
{
    static const mha__kind *const kinds[] = {&bert.kind, NULL};
    const mha__kind *kind = NULL;
    MHA__TRY(mha__stage_load(t, root, "pre_tokenizer", kinds, &kind, err));
    t->splitter = (const mha__splitter_kind *)kind;
    return MHA_OK;
}

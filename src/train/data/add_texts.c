/* add_texts.c - tokenizes texts and appends all their tokens to a single token run. The text strings are not stored. */
#include "base/ctx.h"
#include "train/data/grow_array.h"
#include "train/data/train_data_struct.h"
#include <string.h>

static mha_status put_ids(mha_train_data *d, const int32_t *ids, int64_t count, mha_error *err)
{
    mha__token_run *to = &d->text;
    const size_t size = mha_dtype_size(to->dtype);
    MHA__TRY(mha__grow_array(d->ctx, &to->memory, to->count, count, size, &d->text_room, "the tokens", err));
    to->ids = to->memory;
    for (int64_t n = 0; n < count; n++) {
        const uint16_t narrow = (uint16_t)ids[n];
        const void *from = to->dtype == MHA_U16 ? (const void *)&narrow : &ids[n];
        memcpy((char *)to->memory + (size_t)to->count++ * size, from, size);
    }
    return MHA_OK;
}

/* Records the end of a text, for texts_apart: each text is one sequence. */
static mha_status put_end(mha_train_data *d, mha_error *err)
{
    mha__token_run *to = &d->text;
    MHA__TRY(mha__grow_array(d->ctx, &to->ends, to->sequences, 1, sizeof *to->ends, &d->ends_room, "the ends of texts",
                             err));
    to->ends[to->sequences++] = to->count;
    return MHA_OK;
}

static mha_status check_ids(const mha_train_data *d, const mha_encoding *e, mha_error *err)
{
    for (int64_t n = 0; n < e->count; n++) {
        const char *token = mha_tokenizer_token(d->o.tokenizer, e->ids[n]);
        mha__quoted q;
        if (e->ids[n] >= d->o.vocab)
            return mha__fail(
                err, MHA_ERR_FORMAT,
                "tokenizer.json: the id of token \"%s\" must be below the model's vocab_size %lld (got %d)",
                token ? mha__quote(&q, token, strlen(token)) : "", (long long)d->o.vocab, (int)e->ids[n]);
    }
    return MHA_OK;
}

/* Adds the tokens of one part of a text. Special tokens that a template puts before a text are added before its first
 * part only; the end token is added once, after its last part. */
static mha_status put(mha_train_data *d, const mha_encoding *e, bool last, mha_error *err)
{
    const bool ended = e->count && e->ids[e->count - 1] == d->o.end;
    MHA__TRY(check_ids(d, e, err));
    MHA__TRY(put_ids(d, e->ids, e->count - (ended && !last), err));
    if (!last) return MHA_OK;
    if (d->o.texts_apart) return put_end(d, err);
    return ended ? MHA_OK : put_ids(d, &d->o.end, 1, err);
}

mha_status mha_train_data_add_text(mha_train_data *d, const char *text, size_t bytes, int last, mha_error *err)
{
    if (!d || !text)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_data_add_text: %s must not be NULL", d ? "text" : "data");
    if (d->finished || !d->o.tokenizer)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_data_add_text: data must %s",
                         d->finished ? "not be finished" : "have a tokenizer");
    const mha_encode_options how = {.size = sizeof how, .no_special = !d->o.causal || d->inside};
    mha_encoding *e = NULL;
    MHA__TRY(mha_tokenizer_encode(d->o.tokenizer, text, bytes, NULL, 0, &how, &e, err));
    const mha_status status = put(d, e, last != 0, err);
    mha_encoding_free(e);
    d->inside = !last;
    return status;
}

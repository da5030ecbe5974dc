/* encode.c - encodes one or two texts to ids: tokenizes each text, truncates the tokens, applies the template and pads
 * the result. */
#include "base/ctx.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "base/utf8.h"
#include "text/trim_offsets.h"
#include "text/truncate_pad.h"
#include <string.h>

/* ---- tokens of one text ---- */

static mha_status tokenize_slice(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in)
{
    mha__slice text = *in;
    size_t before = pass->tokens.count;
    MHA__TRY(mha__edits_run(&t->splitter, pass, pass->rewritten, &text));
    for (size_t i = 0; i < pass->word_count; i++)
        MHA__TRY(t->model->tokenize(t, pass, &text, &pass->words[i]));
    for (size_t i = before; t->trim.wanted && i < pass->tokens.count; i++) {
        mha__token *token = &pass->tokens.items[i];
        if (!token->counted) mha__trim_count(token, t->token[token->id], strlen(t->token[token->id]));
    }
    return MHA_OK;
}

static mha_status tokenize_raw(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in)
{
    mha__slice normal;
    MHA__TRY(mha__normalize(t, pass, in, &normal));
    return mha__added_split(t, &t->normalized, pass, &normal, tokenize_slice);
}

static mha_status tokenize(const mha_tokenizer *t, mha__pass *pass, const char *text, size_t bytes, const char *name)
{
    if (bytes > UINT32_MAX)
        return mha__fail(pass->err, MHA_ERR_UNSUPPORTED, "%s must be below 4 GiB (got %zu bytes)", name, bytes);
    size_t good = mha__utf8_check(text, bytes);
    if (good < bytes)
        return mha__fail(pass->err, MHA_ERR_ARG, "%s must be UTF-8 (got 0x%02X at byte %zu)", name,
                         (unsigned)(unsigned char)text[good], good);
    pass->text = text;
    pass->text_bytes = bytes;
    mha__slice whole = {.bytes = text, .n = bytes};
    return mha__added_split(t, &t->raw, pass, &whole, tokenize_raw);
}

/* ---- memory of an encoding ---- */

/* An encoding, its context for mha_encoding_free, and its arrays, in one allocation. */
typedef struct encoding_memory {
    mha_encoding encoding; /* first member, so both have the address of the allocation */
    mha_ctx *ctx;
} encoding_memory;

static mha_status make_encoding(mha_ctx *ctx, int64_t count, mha_encoding **out, mha_error *err)
{
    const size_t each = 2 * sizeof(int64_t) + 2 * sizeof(int32_t) + sizeof(int8_t);
    size_t bytes;
    if (!mha__mul((size_t)count, each, &bytes) || !mha__add(bytes, sizeof(encoding_memory), &bytes))
        return mha__no_memory(err, SIZE_MAX, "an encoding");
    encoding_memory *memory = mha__alloc(ctx, bytes);
    if (!memory) return mha__no_memory(err, bytes, "an encoding");
    int64_t *begin = (int64_t *)(memory + 1);
    int32_t *ids = (int32_t *)(begin + 2 * count);
    memory->ctx = ctx;
    memory->encoding = (mha_encoding){.begin = begin,
                                      .end = begin + count,
                                      .ids = ids,
                                      .type_ids = ids + count,
                                      .sequence = (int8_t *)(ids + 2 * count)};
    *out = &memory->encoding;
    return MHA_OK;
}

mha_status mha__encoding_of_ids(mha_ctx *ctx, const int32_t *ids, int64_t count, mha_encoding **out, mha_error *err)
{
    MHA__TRY(make_encoding(ctx, count, out, err));
    mha_encoding *e = *out;
    e->count = count;
    for (int64_t i = 0; i < count; i++) {
        e->ids[i] = ids[i];
        e->type_ids[i] = 0;
        e->begin[i] = e->end[i] = 0;
        e->sequence[i] = 0;
    }
    return MHA_OK;
}

void mha_encoding_free(mha_encoding *encoding)
{
    encoding_memory *memory = (encoding_memory *)encoding;
    if (memory) mha__free(memory->ctx, memory);
}

static void put(mha_encoding *e, mha__token token, int32_t type_id, int sequence)
{
    int64_t at = e->count++;
    e->ids[at] = token.id;
    e->type_ids[at] = type_id;
    e->begin[at] = token.begin;
    e->end[at] = token.end;
    e->sequence[at] = (int8_t)sequence;
}

static void put_padding(const mha__stored_limits *limits, int64_t count, mha_encoding *e)
{
    for (int64_t i = 0; i < count; i++)
        put(e, (mha__token){.id = limits->pad_id}, limits->pad_type_id, -1);
}

/* The texts of a call, their tokens, and the range of each that remains after truncation. */
typedef struct cut_texts {
    int texts;
    const char *text[2];
    mha__token_list tokens[2];
    mha__token_range kept[2];
} cut_texts;

static void put_template(const mha_tokenizer *t, bool specials, const cut_texts *cut, mha_encoding *e)
{
    const mha__template *list = cut->texts == 2 ? &t->pair : &t->single;
    for (size_t i = 0; i < list->count; i++) {
        const mha__template_item *item = &list->items[i];
        if (item->sequence < 0) {
            if (specials) put(e, (mha__token){.id = item->id}, item->type_id, -1);
            continue;
        }
        const mha__token_range *kept = &cut->kept[item->sequence];
        for (size_t k = 0; k < kept->count; k++) {
            mha__token token = cut->tokens[item->sequence].items[kept->begin + k];
            if (t->trim.wanted) mha__trim(t, cut->text[item->sequence], &token, k == 0);
            put(e, token, item->type_id, item->sequence);
        }
    }
}

static mha_status assemble(const mha_tokenizer *t, const mha_encode_options *options, cut_texts *cut,
                           mha_encoding **out, mha_error *err)
{
    int64_t specials = options->no_special ? 0 : cut->texts == 2 ? t->pair.specials : t->single.specials;
    int64_t count = specials;
    int64_t all = specials;
    mha__fit fit;
    for (int i = 0; i < cut->texts; i++) {
        cut->kept[i] = (mha__token_range){0, cut->tokens[i].count};
        all += (int64_t)cut->tokens[i].count;
    }
    MHA__TRY(mha__fit_resolve(t, options, &fit, err));
    MHA__TRY(mha__fit_cut(&fit, specials, cut->kept, cut->texts, err));
    for (int i = 0; i < cut->texts; i++)
        count += (int64_t)cut->kept[i].count;
    bool pad = options->stored_limits && t->limits.pad;
    int64_t padding = pad ? mha__fit_padded(&t->limits, count) - count : 0;
    MHA__TRY(make_encoding(t->ctx, count + padding, out, err));
    (*out)->truncated = all - count;
    if (t->limits.pad_left) put_padding(&t->limits, padding, *out);
    put_template(t, !options->no_special, cut, *out);
    if (!t->limits.pad_left) put_padding(&t->limits, padding, *out);
    return MHA_OK;
}

/* Tokenizes the texts with the same mha__pass, to reuse its memory. */
static mha_status tokenize_texts(const mha_tokenizer *t, const size_t bytes[2], cut_texts *cut, mha_error *err)
{
    static const char *const names[] = {"text", "second text"};
    mha__pass pass = {.ctx = t->ctx, .err = err};
    mha_status status = MHA_OK;
    if (t->vocab.count == 0)
        return mha__fail(err, MHA_ERR_FORMAT,
                         MHA__TOKENIZER_FILE ": model.vocab must have at least one token to encode text (got none)");
    for (int i = 0; i < cut->texts && status == MHA_OK; i++) {
        status = tokenize(t, &pass, cut->text[i], bytes[i], names[i]);
        cut->tokens[i] = pass.tokens;
        pass.tokens = (mha__token_list){0};
    }
    mha__pass_free(&pass);
    return status;
}

mha_status mha_tokenizer_encode(const mha_tokenizer *t, const char *text, size_t bytes, const char *pair,
                                size_t pair_bytes, const mha_encode_options *options, mha_encoding **out,
                                mha_error *err)
{
    mha_encode_options own;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out must not be NULL");
    *out = NULL;
    if (!t || (!text && bytes > 0)) return mha__fail(err, MHA_ERR_ARG, "tokenizer and text must not be NULL");
    MHA__TRY(mha__options_read(&own, sizeof own, options, "mha_encode_options", err));
    cut_texts cut = {.texts = pair ? 2 : 1, .text = {text ? text : "", pair}};
    mha_status status = tokenize_texts(t, (const size_t[2]){bytes, pair_bytes}, &cut, err);
    if (status == MHA_OK) status = assemble(t, &own, &cut, out, err);
    mha__token_list_free(t->ctx, &cut.tokens[0]);
    mha__token_list_free(t->ctx, &cut.tokens[1]);
    return status;
}

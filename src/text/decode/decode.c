/* decode.c - maps each decoder type to decode steps, and runs them on a list of ids or on a stream. */
#include "base/ctx.h"
#include "base/size.h"
#include "base/utf8.h"
#include "io/input_limits.h"
#include "text/tokenizer.h"
#include <string.h>

/* ---- running the steps ---- */

void mha__decoding_free(mha__decoding *d)
{
    for (int i = 0; i <= MHA__DECODE_STEPS; i++)
        mha__free(d->pass.ctx, d->state[i].bytes);
    mha__pass_free(&d->pass);
}

mha_status mha__decode_keep(mha__decoding *d, int step, const char *bytes, size_t n)
{
    mha__decode_state *state = &d->state[step];
    size_t want;
    if (n == 0) return MHA_OK;
    if (!mha__add(state->n, n, &want) || want > d->limit)
        return mha__fail(d->pass.err, MHA_ERR_UNSUPPORTED,
                         "decoded text must be at most %zu bytes (16 times the tokens plus 4096)", d->limit);
    MHA__TRY(mha__pass_grow(&d->pass, &state->bytes, &state->room, want + 1, 1));
    memcpy(state->bytes + state->n, bytes, n);
    state->n = want;
    return MHA_OK;
}

mha_status mha__decode_emit(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part)
{
    int next = step + 1;
    if (next == d->list->count) return mha__decode_keep(d, MHA__DECODE_STEPS, bytes, n);
    return d->list->items[next].feed(d, next, n ? bytes : "", n, part);
}

mha_status mha__decoding_feed(mha__decoding *d, const char *token)
{
    size_t n = strlen(token);
    if (!mha__add(d->limit, MHA__NORMALIZED_BYTES(n), &d->limit)) d->limit = SIZE_MAX;
    return mha__decode_emit(d, -1, token, n, MHA__PART_WHOLE);
}

mha_status mha__decoding_finish(mha__decoding *d)
{
    for (int i = 0; i < d->list->count; i++)
        if (d->list->items[i].finish) MHA__TRY(d->list->items[i].finish(d, i));
    return MHA_OK;
}

/* ---- loading ---- */

static mha_status add(const mha__json_obj *json, void *into, const mha__decode_step *step, mha_error *err)
{
    mha__decode_list *list = into;
    if (list->count == MHA__DECODE_STEPS)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must have at most %d steps", json->file, json->where,
                         (int)MHA__DECODE_STEPS);
    for (int i = 0; step->whole && i < list->count; i++)
        if (list->items[i].fuses)
            return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s.type must not follow Fuse or ByteLevel (got %s)",
                             json->file, json->where,
                             mha__json_show(&(mha__quoted){0}, mha__json_get(json->json, "type")));
    list->items[list->count++] = *step;
    return MHA_OK;
}

static mha_status load_wordpiece(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__decode_step step = mha__decode_wordpiece;
    const char *prefix;
    MHA__TRY(mha__json_string(json, "prefix", MHA__REQUIRED, &prefix, NULL, err));
    MHA__TRY(mha__json_bool(json, "cleanup", MHA__REQUIRED, &step.wordpiece.cleanup, err));
    step.wordpiece.n = strlen(prefix);
    MHA__TRY(mha__copy_text(t, prefix, step.wordpiece.n, &step.wordpiece.prefix, err));
    return add(json, list, &step, err);
}

static mha_status load_bytes(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    (void)t;
    return add(json, list, &mha__decode_bytes, err);
}

static mha_status load_fallback(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    (void)t;
    return add(json, list, &mha__decode_fallback, err);
}

static mha_status load_fuse(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    (void)t;
    return add(json, list, &mha__decode_fuse, err);
}

static mha_status load_replace(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__decode_step step = mha__decode_replace;
    MHA__TRY(mha__replace_load(t, json, &step.replace.pattern, &step.replace.with, &step.replace.n, err));
    return add(json, list, &step, err);
}

static mha_status load_metaspace(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__decode_step step = mha__decode_metaspace;
    mha__metaspace m;
    MHA__TRY(mha__metaspace_load(t, json, &m, err));
    step.metaspace.mark = m.mark;
    step.metaspace.n = m.n;
    step.metaspace.drop_first = m.scheme != MHA__PREPEND_NEVER;
    return add(json, list, &step, err);
}

static mha_status load_strip(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__decode_step step = mha__decode_strip;
    const char *content;
    uint32_t code;
    MHA__TRY(mha__json_string(json, "content", MHA__REQUIRED, &content, &step.strip.n, err));
    if (step.strip.n == 0 || mha__utf8_read(content, step.strip.n, &code) != (int)step.strip.n)
        return mha__json_refuse(json, "content", "one character", err);
    MHA__TRY(mha__json_int(json, "start", MHA__REQUIRED, 0, INT32_MAX, &step.strip.start, err));
    MHA__TRY(mha__json_int(json, "stop", MHA__REQUIRED, 0, INT32_MAX, &step.strip.stop, err));
    MHA__TRY(mha__copy_text(t, content, step.strip.n, &step.strip.text, err));
    return add(json, list, &step, err);
}

static const mha__kind kinds[] = {
    {"WordPiece", load_wordpiece}, {"ByteLevel", load_bytes}, {"ByteFallback", load_fallback}, {"Fuse", load_fuse},
    {"Metaspace", load_metaspace}, {"Replace", load_replace}, {"Strip", load_strip},           {NULL, NULL},
};

mha_status mha__decoder_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err)
{
    static const mha__stage stage = {"decoder", "decoders", kinds};
    bool found;
    MHA__TRY(mha__stage_load(t, root, &stage, &t->decoder, &found, err));
    if (!found) t->decoder = (mha__decode_list){.items = {mha__decode_plain}, .count = 1};
    return MHA_OK;
}

/* ---- decoding a list of ids ---- */

static mha_status check_id(const mha_tokenizer *t, int32_t id, int64_t index, mha_error *err)
{
    if (mha__token_text(t, id)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "ids[%lld] must be at least 0 and below %lld (got %d)", (long long)index,
                     (long long)t->ids, (int)id);
}

static mha_status decode_all(mha__decoding *d, const mha_tokenizer *t, const int32_t *ids, int64_t count,
                             int skip_special)
{
    for (int64_t i = 0; i < count; i++)
        MHA__TRY(check_id(t, ids[i], i, d->pass.err));
    for (int64_t i = 0; i < count; i++)
        if (!skip_special || !(t->special[ids[i]] & MHA__SKIPPED)) MHA__TRY(mha__decoding_feed(d, t->token[ids[i]]));
    MHA__TRY(mha__decoding_finish(d));
    mha__decode_state *text = &d->state[MHA__DECODE_STEPS];
    return mha__pass_grow(&d->pass, &text->bytes, &text->room, text->n + 1, 1);
}

mha_status mha_tokenizer_decode(const mha_tokenizer *t, const int32_t *ids, int64_t count, int skip_special, char **out,
                                size_t *bytes, mha_error *err)
{
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out must not be NULL");
    *out = NULL;
    if (!t) return mha__fail(err, MHA_ERR_ARG, "tokenizer must not be NULL");
    if (count < 0) return mha__fail(err, MHA_ERR_ARG, "count must be at least 0 (got %lld)", (long long)count);
    if (count > 0 && !ids)
        return mha__fail(err, MHA_ERR_ARG, "ids must not be NULL unless count is 0 (got count %lld)", (long long)count);
    mha__decoding d = {.pass = {.ctx = t->ctx, .err = err}, .list = &t->decoder};
    mha_status status = decode_all(&d, t, ids, count, skip_special);
    mha__decode_state *text = &d.state[MHA__DECODE_STEPS];
    if (status == MHA_OK) {
        text->bytes[text->n] = '\0';
        *out = text->bytes;
        if (bytes) *bytes = text->n;
        text->bytes = NULL;
    }
    mha__decoding_free(&d);
    return status;
}

void mha_tokenizer_text_free(const mha_tokenizer *t, char *text)
{
    if (t) mha__free(t->ctx, text);
}

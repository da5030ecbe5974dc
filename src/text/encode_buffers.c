/* encode_buffers.c - implements growing buffers, and access to the characters of slices. */
#include "text/encode_buffers.h"

#include "base/ctx.h"
#include "base/size.h"
#include "base/utf8.h"
#include <string.h>

void mha__pass_free(mha__pass *pass)
{
    for (int i = 0; i < 2; i++) {
        mha__free(pass->ctx, pass->normal[i].bytes);
        mha__free(pass->ctx, pass->normal[i].from);
        mha__free(pass->ctx, pass->rewritten[i].bytes);
        mha__free(pass->ctx, pass->rewritten[i].from);
    }
    mha__free(pass->ctx, pass->run);
    mha__free(pass->ctx, pass->sorted);
    mha__free(pass->ctx, pass->words);
    mha__free(pass->ctx, pass->uncut);
    mha__matches_free(pass->matches);
    mha__free(pass->ctx, pass->work.items);
    mha__free(pass->ctx, pass->queue.items);
}

void mha__token_list_free(mha_ctx *ctx, mha__token_list *list)
{
    mha__free(ctx, list->items);
    *list = (mha__token_list){0};
}

mha_status mha__items_grow(mha_ctx *ctx, void *items, size_t *room, size_t want, size_t size, mha_error *err)
{
    if (want <= *room) return MHA_OK;
    size_t grown = *room < SIZE_MAX / 2 && 2 * *room > want ? 2 * *room : want;
    if (grown < 64) grown = 64;
    size_t bytes;
    if (!mha__mul(grown, size, &bytes)) return mha__no_memory(err, SIZE_MAX, "a text");
    void *old;
    memcpy(&old, items, sizeof old); /* `items` points to the array pointer, which may have any type */
    void *memory = mha__alloc(ctx, bytes);
    if (!memory) return mha__no_memory(err, bytes, "a text");
    if (old) memcpy(memory, old, *room * size);
    mha__free(ctx, old);
    memcpy(items, &memory, sizeof memory);
    *room = grown;
    return MHA_OK;
}

mha_status mha__pass_grow(mha__pass *pass, void *items, size_t *room, size_t want, size_t size)
{
    return mha__items_grow(pass->ctx, items, room, want, size, pass->err);
}

mha_status mha__work_grow(mha__pass *pass, mha__work *work, size_t want, size_t size)
{
    size_t bytes;
    if (!mha__mul(want, size, &bytes)) return mha__no_memory(pass->err, SIZE_MAX, "a text");
    return mha__pass_grow(pass, &work->items, &work->room, bytes, 1);
}

mha_status mha__pass_word(mha__pass *pass, size_t begin, size_t end)
{
    if (begin == end) return MHA_OK;
    MHA__TRY(mha__pass_grow(pass, &pass->words, &pass->word_room, pass->word_count + 1, sizeof *pass->words));
    pass->words[pass->word_count++] = (mha__word){begin, end};
    return MHA_OK;
}

/* Returns the length of the character at p, determined by its first byte. */
static uint32_t length_at(const char *p)
{
    unsigned char lead = (unsigned char)*p;
    return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

uint32_t mha__pass_origin(const mha__pass *pass, const mha__slice *slice, size_t at)
{
    uint32_t from = mha__slice_from(slice, at);
    while (!slice->from && ((unsigned char)pass->text[from] & 0xC0) == 0x80)
        from--;
    return from;
}

mha_status mha__pass_token(mha__pass *pass, const mha__slice *slice, int32_t id, size_t begin, size_t end)
{
    mha__token_list *list = &pass->tokens;
    MHA__TRY(mha__pass_grow(pass, &list->items, &list->room, list->count + 1, sizeof *list->items));
    uint32_t last = mha__pass_origin(pass, slice, end - 1);
    list->items[list->count++] = (mha__token){
        .id = id, .begin = mha__pass_origin(pass, slice, begin), .end = last + length_at(pass->text + last)};
    return MHA_OK;
}

/* ---- appending to a text ---- */

static mha_status make_room(mha__pass *pass, mha__aligned *to, size_t n)
{
    size_t want;
    if (!mha__add(to->n, n, &want) || want > to->limit)
        return mha__fail(pass->err, MHA_ERR_UNSUPPORTED,
                         "text: normalized form must be at most %zu bytes (16 times the text plus 4096)", to->limit);
    MHA__TRY(mha__pass_grow(pass, &to->bytes, &to->bytes_room, want, 1));
    return mha__pass_grow(pass, &to->from, &to->from_room, want, sizeof *to->from);
}

mha_status mha__pass_put_bytes(mha__pass *pass, const char *bytes, size_t n, uint32_t from)
{
    mha__aligned *to = pass->to;
    MHA__TRY(make_room(pass, to, n));
    for (size_t i = 0; i < n; i++) {
        to->bytes[to->n] = bytes[i];
        to->from[to->n++] = from;
    }
    return MHA_OK;
}

mha_status mha__pass_put(mha__pass *pass, uint32_t code, uint32_t from)
{
    char bytes[4];
    return mha__pass_put_bytes(pass, bytes, (size_t)mha__utf8_write(code, bytes), from);
}

mha_status mha__pass_copy(mha__pass *pass, const mha__slice *slice, size_t begin, size_t end)
{
    mha__aligned *to = pass->to;
    size_t n = end - begin;
    if (n == 0) return MHA_OK;
    MHA__TRY(make_room(pass, to, n));
    memcpy(to->bytes + to->n, slice->bytes + begin, n);
    if (slice->from) memcpy(to->from + to->n, slice->from + begin, n * sizeof *to->from);
    for (size_t i = 0; !slice->from && i < n; i++)
        to->from[to->n + i] = mha__pass_origin(pass, slice, begin + i);
    to->n += n;
    return MHA_OK;
}

/* ---- slices ---- */

mha__slice mha__aligned_slice(const mha__aligned *text)
{
    return (mha__slice){.bytes = text->n ? text->bytes : "", .n = text->n, .from = text->from};
}

mha__slice mha__slice_cut(const mha__slice *slice, size_t begin, size_t end)
{
    return (mha__slice){.bytes = slice->bytes + begin,
                        .n = end - begin,
                        .from = slice->from ? slice->from + begin : NULL,
                        .base = slice->base + (uint32_t)begin};
}

uint32_t mha__slice_from(const mha__slice *slice, size_t at)
{
    return slice->from ? slice->from[at] : slice->base + (uint32_t)at;
}

uint32_t mha__slice_last(const mha__slice *slice, size_t at, size_t *length)
{
    size_t begin = at - 1;
    while (((unsigned char)slice->bytes[begin] & 0xC0) == 0x80)
        begin--;
    return mha__slice_next(slice, begin, length);
}

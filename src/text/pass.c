/* pass.c - growing memory and stepping through slices. */
#include "text/pass.h"

#include "base/ctx.h"
#include "base/size.h"
#include "base/utf8.h"
#include <string.h>

void mha__pass_free(mha__pass *pass)
{
    mha__free(pass->ctx, pass->normal.bytes);
    mha__free(pass->ctx, pass->normal.from);
    mha__free(pass->ctx, pass->run);
    mha__free(pass->ctx, pass->sorted);
    mha__free(pass->ctx, pass->words);
}

void mha__token_list_free(mha_ctx *ctx, mha__token_list *list)
{
    mha__free(ctx, list->items);
    *list = (mha__token_list){0};
}

mha_status mha__pass_grow(mha__pass *pass, void *items, size_t *room, size_t want, size_t size)
{
    if (want <= *room) return MHA_OK;
    size_t grown = *room < SIZE_MAX / 2 && 2 * *room > want ? 2 * *room : want;
    if (grown < 64) grown = 64;
    size_t bytes;
    if (!mha__mul(grown, size, &bytes)) return mha__no_memory(pass->err, SIZE_MAX, "a text");
    void *old;
    memcpy(&old, items, sizeof old); /* `items` is the address of a pointer of any type */
    void *memory = mha__alloc(pass->ctx, bytes);
    if (!memory) return mha__no_memory(pass->err, bytes, "a text");
    if (old) memcpy(memory, old, *room * size);
    mha__free(pass->ctx, old);
    memcpy(items, &memory, sizeof memory);
    *room = grown;
    return MHA_OK;
}

mha_status mha__pass_word(mha__pass *pass, size_t begin, size_t end)
{
    if (begin == end) return MHA_OK;
    MHA__TRY(mha__pass_grow(pass, &pass->words, &pass->word_room, pass->word_count + 1, sizeof *pass->words));
    pass->words[pass->word_count++] = (mha__word){begin, end};
    return MHA_OK;
}

/* Bytes of the character that begins at p, from its first byte. */
static uint32_t length_at(const char *p)
{
    unsigned char lead = (unsigned char)*p;
    return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

mha_status mha__pass_token(mha__pass *pass, const mha__slice *slice, int32_t id, size_t begin, size_t end)
{
    mha__token_list *list = &pass->tokens;
    MHA__TRY(mha__pass_grow(pass, &list->items, &list->room, list->count + 1, sizeof *list->items));
    uint32_t last = mha__slice_from(slice, end - 1);
    uint32_t past = slice->from ? last + length_at(pass->text + last) : last + 1;
    list->items[list->count++] = (mha__token){id, mha__slice_from(slice, begin), past};
    return MHA_OK;
}

mha_status mha__aligned_put(mha__pass *pass, mha__aligned *to, uint32_t code, uint32_t from)
{
    char bytes[4];
    int n = mha__utf8_write(code, bytes);
    size_t want = to->n + (size_t)n;
    if (want > to->limit)
        return mha__fail(pass->err, MHA_ERR_UNSUPPORTED,
                         "text: its normalized form is longer than %zu bytes (16 times the text and 4096)", to->limit);
    MHA__TRY(mha__pass_grow(pass, &to->bytes, &to->bytes_room, want, 1));
    MHA__TRY(mha__pass_grow(pass, &to->from, &to->from_room, want, sizeof *to->from));
    for (int i = 0; i < n; i++) {
        to->bytes[to->n] = bytes[i];
        to->from[to->n++] = from;
    }
    return MHA_OK;
}

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

uint32_t mha__slice_next(const mha__slice *slice, size_t at, size_t *length)
{
    uint32_t code = 0;
    *length = (size_t)mha__utf8_read(slice->bytes + at, slice->n - at, &code);
    return code;
}

uint32_t mha__slice_last(const mha__slice *slice, size_t at, size_t *length)
{
    size_t begin = at - 1;
    while (((unsigned char)slice->bytes[begin] & 0xC0) == 0x80)
        begin--;
    return mha__slice_next(slice, begin, length);
}

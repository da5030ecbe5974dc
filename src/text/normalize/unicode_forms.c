/* unicode_forms.c - implements the Unicode normalization forms NFC, NFD, NFKC and NFKD.
 *
 * Offsets are computed as in the reference, which counts how many input characters each output character consumed, and
 * aligns both texts by these counts. A composed character therefore gets the offset of the first character that it was
 * composed from. */
#include "text/normalize/canonical_order.h"
#include <utf8proc.h>

/* Returns true if the form leaves the text unchanged: characters whose first byte is below `first` never compose or
 * decompose. */
static bool is_inert(const mha__edit *edit, const mha__slice *in)
{
    /* 0xCC = first UTF-8 byte of U+0300, the first combining character */
    unsigned char first = edit->form.compose && !edit->form.compatible ? 0xCC : 0x80;
    for (size_t i = 0; i < in->n; i++)
        if ((unsigned char)in->bytes[i] >= first) return false;
    return true;
}

static mha_status decompose(const mha__edit *edit, mha__pass *pass, const mha__slice *in)
{
    size_t unsettled = 0;
    pass->run_count = 0;
    for (size_t at = 0, length; at < in->n; at += length) {
        uint32_t parts[MHA__DECOMPOSED_MAX];
        int n = mha__char_decompose(mha__slice_next(in, at, &length), edit->form.compatible, parts);
        for (int i = 0; i < n; i++) {
            uint8_t order = (uint8_t)mha__char_order(parts[i]);
            if (order == 0) MHA__TRY(mha__order_settle(pass, unsettled));
            MHA__TRY(mha__order_add(pass, (mha__pending){parts[i], mha__pass_origin(pass, in, at), order, i > 0}));
            if (order == 0) unsettled = pass->run_count;
        }
    }
    return mha__order_settle(pass, unsettled);
}

/* Returns the character that two characters compose to; 0 if they do not compose. */
static uint32_t compose_two(uint32_t first, uint32_t second)
{
    utf8proc_int32_t both[2] = {(utf8proc_int32_t)first, (utf8proc_int32_t)second};
    /* U+0300 is the lowest second character of a composition. U+11A7 represents a missing final consonant, but utf8proc
     * 2.8 treats it as a consonant. */
    if (second < 0x300 || second == 0x11A7) return 0;
    return utf8proc_normalize_utf32(both, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) == 1 ? (uint32_t)both[0] : 0;
}

/* Composes the characters of a run in canonical order. A character combines with the last starter unless a character
 * with the same or a higher combining class is between them. */
static size_t compose(const mha__pending *run, size_t n, bool wanted, mha__composed *to)
{
    size_t count = 0;
    mha__composed *starter = NULL;
    int between = -1; /* combining class of the last character after the starter */
    for (size_t i = 0; i < n; i++) {
        mha__composed item = {run[i].code, !run[i].inserted};
        bool open = wanted && starter && between < (int)run[i].order;
        uint32_t both = open ? compose_two(starter->code, item.code) : 0;
        if (both) {
            starter->code = both;
            starter->origins += item.origins;
            continue;
        }
        to[count++] = item;
        between = run[i].order;
        if (run[i].order == 0) {
            starter = &to[count - 1];
            between = -1;
        }
    }
    return count;
}

mha_status mha__edit_form(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base)
{
    (void)base;
    if (is_inert(edit, in)) return mha__pass_copy(pass, in, 0, in->n);
    MHA__TRY(decompose(edit, pass, in));
    MHA__TRY(mha__work_grow(pass, &pass->work, pass->run_count, sizeof(mha__composed)));
    return mha__order_put(pass, pass->work.items,
                          compose(pass->run, pass->run_count, edit->form.compose, pass->work.items));
}

/* text_edit.c - runs edits, and implements the simple ones: replacing, prepending, splitting, and mapping bytes to
 * characters. */
#include "text/normalize/text_edit.h"

#include "io/input_limits.h"
#include "text/byte_level.h"
#include <string.h>

mha_status mha__edits_run(const mha__edit_list *list, mha__pass *pass, mha__aligned buffers[2], mha__slice *text)
{
    size_t limit = MHA__NORMALIZED_BYTES(text->n);
    pass->word_count = 0;
    MHA__TRY(mha__pass_word(pass, 0, text->n));
    for (int i = 0; i < list->count; i++) {
        const mha__edit *edit = &list->items[i];
        size_t count = pass->word_count;
        MHA__TRY(mha__pass_grow(pass, &pass->uncut, &pass->uncut_room, count, sizeof *pass->uncut));
        if (count) memcpy(pass->uncut, pass->words, count * sizeof *pass->uncut);
        pass->word_count = 0;
        if (edit->rewrites) {
            pass->to = pass->to == &buffers[0] ? &buffers[1] : &buffers[0];
            pass->to->n = 0;
            pass->to->limit = limit;
        }
        for (size_t k = 0; k < count; k++) {
            mha__slice word = mha__slice_cut(text, pass->uncut[k].begin, pass->uncut[k].end);
            size_t begin = edit->rewrites ? pass->to->n : pass->uncut[k].begin;
            MHA__TRY(edit->run(edit, pass, &word, begin));
            if (edit->rewrites) MHA__TRY(mha__pass_word(pass, begin, pass->to->n));
        }
        if (edit->rewrites) *text = mha__aligned_slice(pass->to);
    }
    return MHA_OK;
}

/* Replaces each match of a pattern. Every character of a replacement gets the offset of the last replaced character. */
mha_status mha__edit_replace(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base)
{
    (void)base;
    size_t begin;
    size_t end;
    for (size_t at = 0; at < in->n; at = end) {
        MHA__TRY(mha__pattern_find(&edit->replace.pattern, pass, in, at, &begin, &end));
        MHA__TRY(mha__pass_copy(pass, in, at, begin));
        if (begin == in->n) break;
        MHA__TRY(mha__pass_put_bytes(pass, edit->replace.with, edit->replace.n, mha__pass_origin(pass, in, end - 1)));
    }
    return MHA_OK;
}

mha_status mha__edit_prefix(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base)
{
    (void)base;
    size_t n = edit->prefix.n;
    bool there = edit->prefix.once && in->n >= n && memcmp(in->bytes, edit->prefix.text, n) == 0;
    uint32_t from = mha__slice_from(in, 0);
    if (!there && !(edit->prefix.first && from > 0)) MHA__TRY(mha__pass_put_bytes(pass, edit->prefix.text, n, from));
    return mha__pass_copy(pass, in, 0, in->n);
}

mha_status mha__edit_strip(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base)
{
    (void)base;
    size_t length;
    size_t begin = 0;
    size_t end = in->n;
    while (edit->strip.left && begin < end && mha__char_is(MHA__CHAR_SPACE, mha__slice_next(in, begin, &length)))
        begin += length;
    while (edit->strip.right && end > begin && mha__char_is(MHA__CHAR_SPACE, mha__slice_last(in, end, &length)))
        end -= length;
    return mha__pass_copy(pass, in, begin, end);
}

/* StripAccents: drops the characters of a class. */
mha_status mha__edit_drop(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base)
{
    (void)base;
    for (size_t at = 0, length; at < in->n; at += length)
        if (!mha__char_is(edit->dropped, mha__slice_next(in, at, &length)))
            MHA__TRY(mha__pass_copy(pass, in, at, at + length));
    return MHA_OK;
}

/* ByteLevel: replaces each byte with a printable character. */
mha_status mha__edit_bytes(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base)
{
    (void)edit, (void)base;
    for (size_t at = 0; at < in->n; at++)
        MHA__TRY(mha__pass_put(pass, mha__byte_char((unsigned char)in->bytes[at]), mha__pass_origin(pass, in, at)));
    return MHA_OK;
}

/* ---- splitting ---- */

/* Returns true if a piece belongs to the same word as the previous piece. */
static bool joins(mha__cut_how how, bool before, bool match)
{
    switch (how) {
    case MHA__MERGED_PREVIOUS:
        return match && !before;
    case MHA__MERGED_NEXT:
        return before && !match;
    case MHA__CONTIGUOUS:
        return before == match;
    default:
        return false;
    }
}

/* The state of a splitting edit. Each piece begins at the end of the previous piece. */
typedef struct pieces {
    size_t word; /* start of the current word */
    size_t end;  /* end of the previous piece */
    bool match;  /* true if the previous piece was a match */
} pieces;

static mha_status add_piece(const mha__edit *edit, mha__pass *pass, size_t base, pieces *p, size_t end, bool match)
{
    if (end == p->end) return MHA_OK;
    bool joined = p->end > 0 && joins(edit->cut.how, p->match, match);
    if (!joined) {
        if (!(p->match && edit->cut.how == MHA__REMOVED)) MHA__TRY(mha__pass_word(pass, base + p->word, base + p->end));
        p->word = p->end;
    }
    p->end = end;
    p->match = match;
    return MHA_OK;
}

mha_status mha__edit_cut(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base)
{
    pieces p = {0};
    size_t begin;
    size_t end;
    for (size_t at = 0; at < in->n; at = end) {
        MHA__TRY(mha__pattern_find(&edit->cut.pattern, pass, in, at, &begin, &end));
        MHA__TRY(add_piece(edit, pass, base, &p, begin, edit->cut.inverted));
        MHA__TRY(add_piece(edit, pass, base, &p, end, !edit->cut.inverted));
    }
    if (p.match && edit->cut.how == MHA__REMOVED) return MHA_OK;
    return mha__pass_word(pass, base + p.word, base + p.end);
}

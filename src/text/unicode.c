/* unicode.c - looks up characters: with a bitmap for ASCII, by binary search in ranges for all other characters. */
#include "text/unicode.h"

#include <utf8proc.h>

bool mha__char_is(mha__char_class class, uint32_t code)
{
    const mha__char_table *table = &mha__char_tables[class];
    if (code < 0x80) return table->ascii[code >> 6] >> (code & 63) & 1;
    int low = 0;
    int high = table->count; /* invariant: the first range with last >= code is in [low, high] */
    while (low < high) {
        int middle = (low + high) / 2;
        if (table->range[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < table->count && table->range[low].first <= code;
}

/* Returns the lower case of a character if it differs from that of utf8proc; otherwise NULL. */
static const mha__char_lower_pair *find_lower(uint32_t code)
{
    int low = 0;
    int high = mha__char_lower_pair_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (mha__char_lower_pairs[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < mha__char_lower_pair_count && mha__char_lower_pairs[low].code == code;
    return found ? &mha__char_lower_pairs[low] : NULL;
}

int mha__char_lower(uint32_t code, uint32_t to[2])
{
    if (code < 0x80) {
        to[0] = code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
        return 1;
    }
    const mha__char_lower_pair *pair = find_lower(code);
    if (!pair) {
        to[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
        return 1;
    }
    to[0] = pair->to[0];
    to[1] = pair->to[1];
    return to[1] ? 2 : 1;
}

int mha__char_decompose(uint32_t code, bool compatible, uint32_t to[MHA__DECOMPOSED_MAX])
{
    utf8proc_int32_t parts[MHA__DECOMPOSED_MAX];
    int boundary = 0;
    to[0] = code;
    if (code < (compatible ? 0xA0 : 0xC0)) return 1;
    if (compatible && mha__char_is(MHA__CHAR_KEPT, code)) return 1;
    if (!compatible && code > 0xFFFF && !mha__char_is(MHA__CHAR_DECOMPOSED, code)) return 1;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)code, parts, MHA__DECOMPOSED_MAX,
                                compatible ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE, &boundary);
    if (n < 1 || n > MHA__DECOMPOSED_MAX) return 1; /* no decomposition is longer than 18 */
    for (int i = 0; i < n; i++)
        to[i] = (uint32_t)parts[i];
    return (int)n;
}

int mha__char_order(uint32_t code)
{
    if (code < 0x300) return 0; /* U+0300 is the first combining character */
    if (!mha__char_is(MHA__CHAR_MARK, code) && !mha__char_is(MHA__CHAR_ORDERED, code)) return 0;
    return utf8proc_get_property((utf8proc_int32_t)code)->combining_class;
}

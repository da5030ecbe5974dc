/* byte_level.h - the characters that represent bytes in the vocabularies of byte-level BPE.
 *
 * Bytes 21-7E, A1-AC and AE-FF are represented by the character with the same code. The other 68 bytes, in ascending
 * order, are represented by U+0100 and the following characters. For example, a space is U+0120, a newline U+010A. */
#ifndef MHA_TEXT_BYTE_LEVEL_H
#define MHA_TEXT_BYTE_LEVEL_H

#include <stdint.h>

enum { MHA__BYTE_CHARS = 0x144 }; /* exclusive upper bound of the characters that represent bytes */

static inline uint32_t mha__byte_char(unsigned byte)
{
    if (byte < 0x21) return 0x100 + byte;
    if (byte < 0x7F) return byte;
    if (byte < 0xA1) return 0x121 + (byte - 0x7F);
    return byte == 0xAD ? 0x143 : byte;
}

/* Returns the byte that a character represents; -1 if it does not represent a byte. */
static inline int mha__char_byte(uint32_t code)
{
    if (code >= MHA__BYTE_CHARS) return -1;
    if (code == 0x143) return 0xAD;
    if (code >= 0x121) return 0x7F + (int)(code - 0x121);
    if (code >= 0x100) return (int)(code - 0x100);
    return mha__byte_char(code) == code ? (int)code : -1;
}

#endif

/* utf8.h - reads, writes and checks UTF-8. */
#ifndef MHA_BASE_UTF8_H
#define MHA_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Reads the character at p, where n bytes remain. Returns its length (1 to 4) and stores its code point. Returns 0 for
 * an ill-formed sequence (overlong, surrogate, above U+10FFFF, truncated). */
int mha__utf8_read(const char *p, size_t n, uint32_t *code);
/* Writes a code point (U+0000 to U+10FFFF, not a surrogate) to p. Returns the number of bytes written (1 to 4). */
int mha__utf8_write(uint32_t code, char *p);
/* Returns the offset of the first ill-formed sequence, or n if there is none. */
size_t mha__utf8_check(const char *p, size_t n);

#endif

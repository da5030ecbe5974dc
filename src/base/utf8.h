/* utf8.h - reading UTF-8 that came from outside. */
#ifndef MHA_BASE_UTF8_H
#define MHA_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Reads the character at p (n > 0 bytes left). Returns its length 1..4 and stores the code point; 0 for anything that
 * is not well-formed (overlong, surrogate, above U+10FFFF, cut off). */
int mha__utf8_read(const char *p, size_t n, uint32_t *code);
/* Writes a code point (0..10FFFF, no surrogate); returns its length 1..4. */
int mha__utf8_write(uint32_t code, char *p);
/* Offset of the first byte that is not well-formed; n if all are. */
size_t mha__utf8_check(const char *p, size_t n);

#endif

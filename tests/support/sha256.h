/* sha256.h - SHA-256 (FIPS 180-4), for tests that compare bytes with a recorded digest. */
#ifndef MHA_TEST_SHA256_H
#define MHA_TEST_SHA256_H

#include <stddef.h>

/* Writes the digest of `n` bytes as 64 lower-case hexadecimal digits, NUL-terminated. */
void sha256_hex(const void *bytes, size_t n, char hex[65]);

#endif

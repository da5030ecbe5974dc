/* sha256.h - SHA-256 (FIPS 180-4) of a byte stream or a file. Records identify their source files by these digests. */
#ifndef MHA_IO_FILES_SHA256_H
#define MHA_IO_FILES_SHA256_H

#include "mha/ctx.h"

typedef struct mha__sha256 {
    uint32_t state[8];
    uint64_t bytes;         /* number of bytes processed so far */
    unsigned char part[64]; /* bytes of an incomplete block */
} mha__sha256;

enum { MHA__SHA256_HEX = 65 }; /* the digest: 64 lower-case hexadecimal digits and a NUL */

void mha__sha256_begin(mha__sha256 *hash);
void mha__sha256_add(mha__sha256 *hash, const void *bytes, size_t count);
void mha__sha256_end(mha__sha256 *hash, char hex[MHA__SHA256_HEX]);

/* Computes the digest of a regular file. Reports progress as "sha256", in bytes. Errors: MHA_ERR_IO, MHA_ERR_MEMORY (1
 * MiB), MHA_ERR_CANCELED. */
mha_status mha__sha256_file(mha_ctx *ctx, const char *path, char hex[MHA__SHA256_HEX], mha_error *err);

#endif

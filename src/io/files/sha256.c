/* sha256.c - SHA-256 as specified in FIPS 180-4, block by block. */
#include "io/files/sha256.h"

#include "base/ctx.h"
#include "io/files/input_file.h"
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64, PIECE = 1 << 20 }; /* [bytes] PIECE: size of the pieces in which a file is read */

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static uint32_t read_word(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void mix(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = read_word(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] =
            w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] + (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t up = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
        const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        const uint32_t down = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
        const uint32_t most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        const uint32_t t = s[7] + up + choice + k[i] + w[i];
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t;
        s[0] = t + down + most;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void mha__sha256_begin(mha__sha256 *hash)
{
    /* The first 32 bits of the fractional parts of the square roots of the first 8 primes. */
    *hash = (mha__sha256){
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void mha__sha256_add(mha__sha256 *hash, const void *bytes, size_t count)
{
    const unsigned char *from = bytes;
    size_t held = (size_t)(hash->bytes % BLOCK);
    hash->bytes += count;
    while (count > 0) {
        const size_t room = BLOCK - held, n = count < room ? count : room;
        memcpy(hash->part + held, from, n);
        held = (held + n) % BLOCK;
        from += n;
        count -= n;
        if (held == 0) mix(hash->state, hash->part);
    }
}

void mha__sha256_end(mha__sha256 *hash, char hex[MHA__SHA256_HEX])
{
    static const unsigned char padding[BLOCK] = {0x80};
    const uint64_t bits = hash->bytes * 8;
    const size_t held = (size_t)(hash->bytes % BLOCK), before = held < 56 ? 56 - held : 120 - held;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    mha__sha256_add(hash, padding, before < BLOCK ? before : BLOCK);
    if (before > BLOCK) mha__sha256_add(hash, padding + 1, before - BLOCK);
    mha__sha256_add(hash, length, sizeof length);
    for (int i = 0; i < 8; i++)
        snprintf(hex + 8 * i, 9, "%08x", (unsigned)hash->state[i]);
}

/* ---- digest of a file ---- */

static mha_status add_source(mha_ctx *ctx, const mha__source *source, unsigned char *piece, mha__sha256 *hash,
                             mha_error *err)
{
    for (size_t at = 0; at < source->size; at += PIECE) {
        const size_t n = source->size - at < PIECE ? source->size - at : PIECE;
        MHA__TRY(mha__progress(ctx, "sha256", (int64_t)at, (int64_t)source->size, err));
        MHA__TRY(mha__source_read(source, at, piece, n, err));
        mha__sha256_add(hash, piece, n);
    }
    return mha__progress(ctx, "sha256", (int64_t)source->size, (int64_t)source->size, err);
}

mha_status mha__sha256_file(mha_ctx *ctx, const char *path, char hex[MHA__SHA256_HEX], mha_error *err)
{
    mha__sha256 hash;
    mha__source source;
    unsigned char *piece = mha__alloc(ctx, PIECE);
    if (!piece) return mha__no_memory(err, PIECE, "the read buffer of a file");
    mha_status status = mha__source_open(&source, NULL, path, err);
    if (status == MHA_OK) {
        mha__sha256_begin(&hash);
        status = add_source(ctx, &source, piece, &hash, err);
        mha__source_close(&source);
        if (status == MHA_OK) mha__sha256_end(&hash, hex);
    }
    mha__free(ctx, piece);
    return status;
}

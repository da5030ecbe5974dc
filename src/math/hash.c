/* hash.c - computes the non-cryptographic hash that hash.h declares. */
#include "math/hash.h"

#include "math/rng_draws.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

uint64_t mha__hash(uint64_t h, const void *data, size_t bytes)
{
    const char *p = data;
    for (size_t at = 0; at < bytes; at += sizeof h) {
        const size_t left = bytes - at;
        uint64_t word = left < sizeof h ? (uint64_t)left << 56 : 0; /* the top byte of a partial word is its byte
                                                                     * count */
        memcpy(&word, p + at, left < sizeof h ? left : sizeof h);
        word ^= h;
        h = mha__splitmix(&word);
    }
    return h;
}

void mha__hash_print(char to[17], uint64_t h)
{
    snprintf(to, 17, "%016" PRIx64, h);
}

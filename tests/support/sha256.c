/* sha256.c - SHA-256 as specified in FIPS 180-4 (see sha256.h).
 *
 * The constants are computed with integers, because a table could contain typing errors: they are the first 32 bits
 * of the fractional parts of the cube roots (K) and square roots (initial state) of the first primes. */
#include "support/sha256.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

/* Returns floor(2^32 * prime^(1/power)) mod 2^32. The root is the largest x with x^power <= prime * 2^(32 power), found
 * bit by bit; intermediate values for cubes have 105 bits. */
static uint32_t root_fraction(unsigned prime, int power)
{
    wide goal = (wide)prime << 32 * power, root = 0;
    for (int bit = 36; bit >= 0; bit--) {
        wide x = root | (wide)1 << bit, y = power == 3 ? x * x * x : x * x;
        if (y <= goal) root = x;
    }
    return (uint32_t)root;
}

static void make_constants(uint32_t k[64], uint32_t state[8])
{
    int found = 0;
    for (unsigned n = 2; found < 64; n++) {
        unsigned d = 2;
        while (d * d <= n && n % d != 0)
            d++;
        if (d * d <= n) continue;
        k[found] = root_fraction(n, 3);
        if (found < 8) state[found] = root_fraction(n, 2);
        found++;
    }
}

static uint32_t rotate(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static void block(uint32_t state[8], const uint32_t k[64], const unsigned char p[64])
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] =
            w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] + (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) +
                      ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
        uint32_t t2 =
            (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void sha256_hex(const void *bytes, size_t n, char hex[65])
{
    uint32_t k[64], state[8];
    make_constants(k, state);
    const unsigned char *p = bytes;
    size_t left = n;
    for (; left >= 64; left -= 64, p += 64)
        block(state, k, p);
    unsigned char tail[128] = {0};
    if (left) memcpy(tail, p, left);
    tail[left] = 0x80;
    size_t length = left < 56 ? 64 : 128;
    for (int i = 0; i < 8; i++)
        tail[length - 1 - (size_t)i] = (unsigned char)((uint64_t)n * 8 >> 8 * i);
    for (size_t at = 0; at < length; at += 64)
        block(state, k, tail + at);
    for (int i = 0; i < 8; i++)
        snprintf(hex + 8 * i, 9, "%08x", (unsigned)state[i]);
}

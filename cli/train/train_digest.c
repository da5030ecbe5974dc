/* train_digest.c - see train_digest.h. */
#include "train/train_digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LANES = sizeof((train_digest *)0)->lane / sizeof(uint64_t), WORD = sizeof(uint32_t) };
static const uint64_t prime = 0x100000001b3;

static void put(uint64_t *lane, uint64_t word)
{
    *lane = (*lane ^ word) * prime;
}

void train_digest_put(train_digest *digest, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    const size_t words = bytes / WORD, left = bytes % WORD;
    uint32_t word;
    for (size_t n = 0; n < words; n++) {
        memcpy(&word, at + n * WORD, WORD);
        put(&digest->lane[n % LANES], word);
    }
    word = 0;
    memcpy(&word, at + words * WORD, left);
    if (left) put(&digest->lane[words % LANES], word);
}

void train_digest_number(train_digest *digest, uint64_t number)
{
    put(&digest->lane[0], number);
}

void train_digest_print(const train_digest *digest, char to[17])
{
    uint64_t all = 0xcbf29ce484222325;
    for (int n = 0; n < LANES; n++)
        put(&all, digest->lane[n] ^ digest->lane[n] >> 29);
    snprintf(to, 17, "%016" PRIx64, all);
}

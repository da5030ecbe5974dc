/* data_digest.c - computes the digest of training data in four independent lanes, because in a single lane, each
 * multiplication would wait for the previous one. */
#include "mha/train_data.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LANES = sizeof((mha_train_digest *)0)->lane / sizeof(uint64_t), WORD = sizeof(uint32_t) };
static const uint64_t prime = 0x100000001b3;

static void add_word(uint64_t *lane, uint64_t word)
{
    *lane = (*lane ^ word) * prime;
}

void mha_train_digest_add(mha_train_digest *digest, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    const size_t words = bytes / WORD, left = bytes % WORD;
    uint32_t word;
    if (!digest || !data) return;
    for (size_t n = 0; n < words; n++) {
        memcpy(&word, at + n * WORD, WORD);
        add_word(&digest->lane[n % LANES], word);
    }
    word = 0;
    memcpy(&word, at + words * WORD, left);
    if (left) add_word(&digest->lane[words % LANES], word);
}

void mha_train_digest_add_number(mha_train_digest *digest, uint64_t number)
{
    if (digest) add_word(&digest->lane[0], number);
}

void mha_train_digest_text(const mha_train_digest *digest, char text[17])
{
    uint64_t all = 0xcbf29ce484222325;
    if (!text) return;
    for (int n = 0; digest && n < LANES; n++)
        add_word(&all, digest->lane[n] ^ digest->lane[n] >> 29);
    text[0] = 0;
    if (digest) snprintf(text, 17, "%016" PRIx64, all);
}

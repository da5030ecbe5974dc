/* train_shuffle.c - permutations and masks from a counter: splitmix64 (Steele, Lea and Flood 2014). */
#include "train/train_shuffle.h"

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* A generator for each purpose and place. */
static uint64_t state_of(uint64_t seed, uint64_t purpose, int64_t place)
{
    uint64_t state = seed;
    state = next(&state) ^ purpose;
    state = next(&state) ^ (uint64_t)place;
    return next(&state);
}

/* Below n < 2^32. */
static int64_t below(uint64_t *state, int64_t n)
{
    return (int64_t)(((next(state) >> 32) * (uint64_t)n) >> 32);
}

/* ---- order ---- */

enum { ORDER = 1, MASKS, ROUNDS = 4 };

static uint64_t scramble(const uint64_t key[ROUNDS], int half, uint64_t x)
{
    const uint64_t low = (1ULL << half) - 1;
    uint64_t left = x >> half, right = x & low;
    for (int n = 0; n < ROUNDS; n++) {
        uint64_t state = key[n] ^ right;
        const uint64_t mixed = left ^ (next(&state) & low);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

int64_t train_draw_sequence(uint64_t seed, int64_t epoch, int64_t place, int64_t count)
{
    uint64_t state = state_of(seed, ORDER, epoch), key[ROUNDS], x = (uint64_t)place;
    int half = 1;
    while (count > 1LL << (2 * half))
        half++;
    for (int n = 0; n < ROUNDS; n++)
        key[n] = next(&state);
    do
        x = scramble(key, half, x);
    while (x >= (uint64_t)count);
    return (int64_t)x;
}

/* ---- masks ---- */

static int32_t hidden(const train_form *form, uint64_t *state, int32_t id)
{
    const int64_t draw = below(state, 10);
    return draw < 8 ? form->mask : draw == 8 ? (int32_t)below(state, form->vocab) : id;
}

void train_draw_mask(const train_form *form, double share, uint64_t seed, int64_t number, int32_t *ids, int32_t *labels)
{
    uint64_t state = state_of(seed, MASKS, number);
    int64_t left = 0;
    for (int64_t n = 0; n < form->length; n++)
        left += !mha_tokenizer_is_special(form->tokenizer, ids[n]);
    int64_t wanted = (int64_t)((double)left * share + 0.5);
    if (wanted < 1) wanted = 1;
    for (int64_t n = 0; n < form->length; n++) { /* each set of `wanted` places is as likely as another (Knuth) */
        labels[n] = MHA_IGNORE;
        if (mha_tokenizer_is_special(form->tokenizer, ids[n])) continue;
        if (below(&state, left--) >= wanted) continue;
        wanted--;
        labels[n] = ids[n];
        ids[n] = hidden(form, &state, ids[n]);
    }
}

/* vocab.c - implements the hash table of a vocabulary. The hash is 64-bit FNV-1a (standard offset basis and prime),
 * computed byte by byte, so one pass hashes all prefixes of a word. */
#include "text/vocabulary/vocab.h"

#include "base/ctx.h"
#include "base/size.h"
#include "text/memory_budget.h"
#include <stdio.h>
#include <string.h>

#define HASH_START 0xCBF29CE484222325u

const mha__vocab_prefix mha__vocab_no_prefix = {.bytes = "", .n = 0, .hash = HASH_START};

static uint64_t hash_byte(uint64_t hash, char byte)
{
    return (hash ^ (unsigned char)byte) * 0x00000100000001B3u;
}

static uint64_t hash_bytes(uint64_t hash, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = hash_byte(hash, p[i]);
    return hash;
}

static uint32_t fold(uint64_t hash)
{
    return (uint32_t)(hash ^ hash >> 32);
}

mha_status mha__vocab_create(mha_ctx *ctx, size_t keys, size_t bytes, size_t *room, mha__vocab *vocab, mha_error *err)
{
    *vocab = (mha__vocab){.ctx = ctx};
    size_t slots = 8;
    size_t total;
    size_t entry_bytes;
    if (keys > UINT32_MAX / 4 || !mha__add(bytes, keys, &total) || total > UINT32_MAX ||
        !mha__mul(keys + 1, sizeof(mha__vocab_entry), &entry_bytes))
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "vocabulary must fit 32-bit offsets (got %zu tokens with %zu bytes)",
                         keys, bytes);
    while (slots < 2 * keys)
        slots *= 2;
    const size_t all = total + entry_bytes + slots * sizeof(mha__vocab_slot);
    MHA__TRY(mha__room_take(room, all, err));
    vocab->bytes = mha__alloc(ctx, total + 1);
    vocab->entries = mha__alloc(ctx, entry_bytes);
    vocab->slots = mha__calloc(ctx, slots, sizeof(mha__vocab_slot));
    vocab->mask = slots - 1;
    if (vocab->bytes && vocab->entries && vocab->slots) return MHA_OK;
    mha__vocab_free(vocab);
    return mha__no_memory(err, all, "the vocabulary");
}

void mha__vocab_free(mha__vocab *vocab)
{
    mha__free(vocab->ctx, vocab->bytes);
    mha__free(vocab->ctx, vocab->entries);
    mha__free(vocab->ctx, vocab->slots);
    *vocab = (mha__vocab){0};
}

static bool is_key(const mha__vocab *vocab, const mha__vocab_entry *entry, const mha__vocab_prefix *prefix,
                   const char *p, size_t n)
{
    const char *key = vocab->bytes + entry->begin;
    return entry->length == prefix->n + n && memcmp(key, prefix->bytes, prefix->n) == 0 &&
           memcmp(key + prefix->n, p, n) == 0;
}

/* Returns the slot of the key prefix + p[0..n), or the free slot where it would be inserted. */
static size_t find_slot(const mha__vocab *vocab, uint32_t hash, const mha__vocab_prefix *prefix, const char *p,
                        size_t n)
{
    size_t at = hash & vocab->mask;
    for (;; at = (at + 1) & vocab->mask) {
        const mha__vocab_slot *slot = &vocab->slots[at];
        if (!slot->entry) return at;
        if (slot->hash == hash && is_key(vocab, &vocab->entries[slot->entry - 1], prefix, p, n)) return at;
    }
}

mha_status mha__vocab_add(mha__vocab *vocab, const char *key, size_t n, int32_t value, const mha__vocab_entry **stored,
                          mha_error *err)
{
    uint32_t hash = fold(hash_bytes(HASH_START, key, n));
    size_t at = find_slot(vocab, hash, &mha__vocab_no_prefix, key, n);
    mha__vocab_slot *slot = &vocab->slots[at];
    if (!slot->entry) {
        vocab->probes += (at - hash) & vocab->mask;
        if (vocab->probes > 16 * vocab->count + 1024)
            return mha__fail(err, MHA_ERR_FORMAT, "too many tokens with the same hash, such as \"%s\"",
                             mha__quote(&(mha__quoted){0}, key, n));
        vocab->entries[vocab->count++] = (mha__vocab_entry){(uint32_t)vocab->used, (uint32_t)n, value};
        *slot = (mha__vocab_slot){hash, (uint32_t)vocab->count};
        memcpy(vocab->bytes + vocab->used, key, n);
        vocab->bytes[vocab->used + n] = '\0';
        vocab->used += n + 1;
        if (n > vocab->longest) vocab->longest = n;
    }
    if (stored) *stored = &vocab->entries[slot->entry - 1];
    return MHA_OK;
}

int32_t mha__vocab_find(const mha__vocab *vocab, const char *key, size_t n)
{
    if (vocab->count == 0) return -1;
    uint32_t entry =
        vocab->slots[find_slot(vocab, fold(hash_bytes(HASH_START, key, n)), &mha__vocab_no_prefix, key, n)].entry;
    return entry ? vocab->entries[entry - 1].value : -1;
}

void mha__vocab_find_bytes(const mha__vocab *vocab, int32_t value[256])
{
    char text[8];
    for (unsigned byte = 0; byte < 256; byte++) {
        snprintf(text, sizeof text, "<0x%02X>", byte);
        value[byte] = mha__vocab_find(vocab, text, 6);
    }
}

mha__vocab_prefix mha__vocab_prefix_of(const char *bytes, size_t n)
{
    return (mha__vocab_prefix){bytes, n, hash_bytes(HASH_START, bytes, n)};
}

int32_t mha__vocab_longest(const mha__vocab *vocab, const mha__vocab_prefix *prefix, const char *p, size_t n,
                           size_t *length)
{
    if (vocab->longest <= prefix->n) return -1;
    size_t limit = vocab->longest - prefix->n < n ? vocab->longest - prefix->n : n;
    uint64_t hash = prefix->hash;
    int32_t value = -1;
    for (size_t i = 0; i < limit; i++) {
        hash = hash_byte(hash, p[i]);
        if (i + 1 < n && ((unsigned char)p[i + 1] & 0xC0) == 0x80) continue; /* inside a character */
        uint32_t entry = vocab->slots[find_slot(vocab, fold(hash), prefix, p, i + 1)].entry;
        if (!entry) continue;
        value = vocab->entries[entry - 1].value;
        *length = i + 1;
    }
    return value;
}

/* bpe.c - implements the BPE model, which starts with the characters of a word and repeatedly merges the pair with the
 * lowest rank (on ties, the leftmost pair) until no pair has a rank.
 *
 * Symbols form a linked list in an array, and candidate pairs form a heap ordered by rank and position, so a word of n
 * characters takes O(n log n) steps. Without a pre-tokenizer, the whole text is one word. A popped candidate may be
 * stale: as in the reference, it is valid only if its two symbols still form the token that it was created for. */
#include "base/ctx.h"
#include "base/utf8.h"
#include "text/tokenizer.h"
#include <stdio.h>
#include <string.h>

enum { NONE = -1 };

typedef struct symbol {
    int32_t id;
    uint32_t length;     /* [bytes]; 0 = merged into the previous symbol */
    uint32_t prev, next; /* index; UINT32_MAX at the ends */
} symbol;

typedef struct candidate {
    uint32_t rank, at; /* at: index of the left symbol */
    int32_t made;
} candidate;

/* The state of merging one word. */
typedef struct merging {
    const mha__bpe *bpe;
    mha__pass *pass;
    uint32_t symbols;
    size_t candidates;
} merging;

static symbol *symbols_of(const merging *m)
{
    return m->pass->work.items;
}

/* ---- initial symbols ---- */

static void add_symbol(merging *m, int32_t id, size_t length)
{
    uint32_t at = m->symbols++;
    symbols_of(m)[at] = (symbol){id, (uint32_t)length, at - 1, at + 1}; /* the prev of the first symbol is UINT32_MAX */
}

/* Appends the byte tokens of a character; returns false, without change, unless all its bytes have tokens. */
static bool add_bytes(merging *m, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (m->bpe->bytes[(unsigned char)p[i]] < 0) return false;
    for (size_t i = 0; i < n; i++)
        add_symbol(m, m->bpe->bytes[(unsigned char)p[i]], 1);
    return true;
}

/* Returns the id of the last character of a word, followed by the suffix; NONE if the vocabulary lacks it. */
static int32_t find_last(const mha_tokenizer *t, const char *p, size_t n)
{
    char text[8 + MHA__BPE_SUFFIX];
    memcpy(text, p, n);
    memcpy(text + n, t->bpe.suffix, t->bpe.suffix_bytes);
    return mha__vocab_find(&t->vocab, text, n + t->bpe.suffix_bytes);
}

/* Creates the symbols of a word's characters. As in the reference, an unknown character is appended only before the
 * next character that has its own token, so byte tokens between the two characters precede it. */
static void add_characters(const mha_tokenizer *t, merging *m, const char *p, size_t n)
{
    size_t unknown = 0; /* bytes of the pending unknown character, 0 = none */
    for (size_t at = 0, length; at < n; at += length) {
        uint32_t code = 0;
        length = (size_t)mha__utf8_read(p + at, n - at, &code);
        int32_t id = code < MHA__BYTE_CHARS ? m->bpe->chars[code] : mha__vocab_find(&t->vocab, p + at, length);
        if (m->bpe->suffix_bytes && at + length == n) id = find_last(t, p + at, length);
        if (id < 0 && m->bpe->byte_fallback && add_bytes(m, p + at, length)) continue;
        if (id < 0 && m->bpe->unk < 0) continue;
        if (unknown > 0 && (id >= 0 || !m->bpe->fuse_unk)) {
            add_symbol(m, m->bpe->unk, unknown);
            unknown = 0;
        }
        if (id >= 0)
            add_symbol(m, id, length);
        else
            unknown += length;
    }
    if (unknown > 0) add_symbol(m, m->bpe->unk, unknown);
    if (m->symbols > 0) symbols_of(m)[m->symbols - 1].next = UINT32_MAX;
}

/* ---- the heap: lowest rank first; ties by leftmost position ---- */

static bool is_before(candidate a, candidate b)
{
    return a.rank < b.rank || (a.rank == b.rank && a.at < b.at);
}

static void sift_down(candidate *heap, size_t n, size_t at)
{
    candidate moving = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_before(heap[child + 1], heap[child])) child++;
        if (!is_before(heap[child], moving)) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static void sift_up(candidate *heap, size_t at)
{
    candidate moving = heap[at];
    for (; at > 0 && is_before(moving, heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = moving;
}

static candidate pop(merging *m)
{
    candidate *heap = m->pass->queue.items;
    candidate top = heap[0];
    heap[0] = heap[--m->candidates];
    if (m->candidates > 0) sift_down(heap, m->candidates, 0);
    return top;
}

/* Appends the pair that begins with symbol `at` to the candidates if the pair has a rank; sets *appended
 * accordingly. */
static mha_status append_pair(merging *m, uint32_t at, bool *appended)
{
    const symbol *s = symbols_of(m);
    int64_t rank = mha__pairs_get(&m->bpe->merges, (uint32_t)s[at].id, (uint32_t)s[s[at].next].id);
    *appended = rank >= 0;
    if (rank < 0) return MHA_OK;
    MHA__TRY(mha__work_grow(m->pass, &m->pass->queue, m->candidates + 1, sizeof(candidate)));
    ((candidate *)m->pass->queue.items)[m->candidates++] = (candidate){(uint32_t)rank, at, m->bpe->made[rank]};
    return MHA_OK;
}

static mha_status push_pair(merging *m, uint32_t at)
{
    bool appended;
    MHA__TRY(append_pair(m, at, &appended));
    if (appended) sift_up(m->pass->queue.items, m->candidates - 1);
    return MHA_OK;
}

/* ---- merging ---- */

static mha_status merge(merging *m, candidate c)
{
    symbol *s = symbols_of(m);
    symbol *left = &s[c.at];
    if (left->length == 0 || left->next == UINT32_MAX) return MHA_OK;
    symbol *right = &s[left->next];
    int64_t rank = mha__pairs_get(&m->bpe->merges, (uint32_t)left->id, (uint32_t)right->id);
    if (rank < 0 || m->bpe->made[rank] != c.made) return MHA_OK;
    left->id = c.made;
    left->length += right->length;
    left->next = right->next;
    right->length = 0;
    if (left->next != UINT32_MAX) s[left->next].prev = c.at;
    if (left->prev != UINT32_MAX) MHA__TRY(push_pair(m, left->prev));
    return left->next != UINT32_MAX ? push_pair(m, c.at) : MHA_OK;
}

static mha_status merge_all(merging *m)
{
    bool appended;
    for (uint32_t at = 0; at + 1 < m->symbols; at++)
        MHA__TRY(append_pair(m, at, &appended));
    for (size_t at = m->candidates / 2; at-- > 0;)
        sift_down(m->pass->queue.items, m->candidates, at);
    while (m->candidates > 0)
        MHA__TRY(merge(m, pop(m)));
    return MHA_OK;
}

static mha_status bpe_tokenize(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in, const mha__word *word)
{
    const char *p = in->bytes + word->begin;
    size_t n = word->end - word->begin;
    merging m = {.bpe = &t->bpe, .pass = pass};
    int32_t id = t->bpe.ignore_merges ? mha__vocab_find(&t->vocab, p, n) : NONE;
    if (id >= 0) return mha__pass_token(pass, in, id, word->begin, word->end);
    if (n >= UINT32_MAX)
        return mha__fail(pass->err, MHA_ERR_UNSUPPORTED, "words of the text must be below 4 GiB (got %zu bytes)", n);
    MHA__TRY(mha__work_grow(pass, &pass->work, n, sizeof(symbol)));
    add_characters(t, &m, p, n);
    MHA__TRY(merge_all(&m));
    size_t begin = word->begin;
    for (uint32_t at = m.symbols > 0 ? 0 : UINT32_MAX; at != UINT32_MAX; at = symbols_of(&m)[at].next) {
        size_t end = begin + symbols_of(&m)[at].length;
        MHA__TRY(mha__pass_token(pass, in, symbols_of(&m)[at].id, begin, end));
        begin = end;
    }
    return MHA_OK;
}

/* ---- loading ---- */

/* Splits a merge, "a b" (with one space) or ["a", "b"], into its two halves. */
static bool split_merge(const mha__json *value, const char *half[2], size_t n[2])
{
    if (mha__json_is(value, MHA__JSON_STRING)) {
        const char *text = mha__json_as_text(value);
        const char *space = strchr(text, ' ');
        if (!space || strchr(space + 1, ' ') || strlen(text) != mha__json_bytes(value)) return false;
        half[0] = text;
        half[1] = space + 1;
        n[0] = (size_t)(space - text);
        n[1] = strlen(half[1]);
        return true;
    }
    for (size_t i = 0; i < 2; i++) {
        const mha__json *part = mha__json_item(value, i);
        if (!mha__json_is(part, MHA__JSON_STRING) || mha__json_size(value) != 2) return false;
        half[i] = mha__json_as_text(part);
        n[i] = mha__json_bytes(part);
    }
    return true;
}

static mha_status refuse_merge(size_t index, const char *want, const mha__json *value, mha_error *err)
{
    char shown[80] = "";
    if (mha__json_is(value, MHA__JSON_ARRAY) && mha__json_size(value) == 2)
        snprintf(shown, sizeof shown, "[%.30s, %.30s]", mha__json_show(&(mha__quoted){0}, mha__json_item(value, 0)),
                 mha__json_show(&(mha__quoted){0}, mha__json_item(value, 1)));
    return mha__fail(err, MHA_ERR_FORMAT, MHA__TOKENIZER_FILE ": model.merges[%zu] must be %s (got %s)", index, want,
                     *shown ? shown : mha__json_show(&(mha__quoted){0}, value));
}

/* Sets *id to the id of the concatenated halves; -1 if it is not in the vocabulary. */
static mha_status find_joined(mha_tokenizer *t, const char *const half[2], const size_t n[2], int32_t *id,
                              mha_error *err)
{
    char *joined = mha__alloc(t->ctx, n[0] + n[1] + 1);
    if (!joined) return mha__no_memory(err, n[0] + n[1] + 1, "the merges");
    memcpy(joined, half[0], n[0]);
    memcpy(joined + n[0], half[1], n[1]);
    *id = mha__vocab_find(&t->vocab, joined, n[0] + n[1]);
    mha__free(t->ctx, joined);
    return MHA_OK;
}

static mha_status load_merge(mha_tokenizer *t, const mha__json *value, bool strings, size_t index, mha_error *err)
{
    const char *half[2];
    size_t n[2];
    int32_t made = NONE;
    if (mha__json_is(value, MHA__JSON_STRING) != strings || !split_merge(value, half, n))
        return refuse_merge(index,
                            strings ? "two tokens separated by one space, such as \"a b\"" : "an array of two tokens",
                            value, err);
    int32_t left = mha__vocab_find(&t->vocab, half[0], n[0]);
    int32_t right = mha__vocab_find(&t->vocab, half[1], n[1]);
    if (left < 0 || right < 0) return refuse_merge(index, "two tokens of model.vocab", value, err);
    MHA__TRY(find_joined(t, half, n, &made, err));
    if (made < 0) return refuse_merge(index, "two tokens whose concatenation is in model.vocab", value, err);
    t->bpe.made[index] = made;
    return mha__pairs_put(&t->bpe.merges, (uint32_t)left, (uint32_t)right, (uint32_t)index, err);
}

static mha_status load_merges(mha_tokenizer *t, const mha__json_obj *json, mha_error *err)
{
    const mha__json *list;
    MHA__TRY(mha__json_array(json, "merges", MHA__REQUIRED, &list, err));
    size_t count = mha__json_size(list);
    t->bpe.merges.ctx = t->ctx;
    t->bpe.merges.room = &t->room;
    MHA__TRY(mha__room_take(&t->room, (count + 1) * sizeof *t->bpe.made, err));
    t->bpe.made = mha__calloc(t->ctx, count + 1, sizeof *t->bpe.made);
    if (!t->bpe.made) return mha__no_memory(err, (count + 1) * sizeof *t->bpe.made, "the merges");
    bool strings = mha__json_is(mha__json_item(list, 0), MHA__JSON_STRING);
    for (mha__json_step i = {0}; mha__json_each(list, &i);)
        MHA__TRY(load_merge(t, i.value, strings, i.index, err));
    return MHA_OK;
}

static void find_characters(mha_tokenizer *t)
{
    char text[8];
    for (uint32_t code = 0; code < MHA__BYTE_CHARS; code++)
        t->bpe.chars[code] = mha__vocab_find(&t->vocab, text, (size_t)mha__utf8_write(code, text));
    mha__vocab_find_bytes(&t->vocab, t->bpe.bytes);
}

/* Reads the suffix of words. Rejects a prefix and dropout: only unsupported model families use them. */
static mha_status read_affixes(mha_tokenizer *t, const mha__json_obj *json, mha_error *err)
{
    const char *prefix = "";
    const char *suffix = "";
    double dropout = 0;
    MHA__TRY(mha__json_string(json, "continuing_subword_prefix", MHA__OPTIONAL, &prefix, NULL, err));
    MHA__TRY(mha__json_string(json, "end_of_word_suffix", MHA__OPTIONAL, &suffix, NULL, err));
    MHA__TRY(mha__json_number(json, "dropout", MHA__OPTIONAL, 0, 1, &dropout, err));
    if (*prefix) return mha__json_refuse(json, "continuing_subword_prefix", "null or empty", err);
    if (strlen(suffix) > sizeof t->bpe.suffix)
        return mha__json_refuse(json, "end_of_word_suffix", "at most 32 bytes", err);
    if (*suffix && t->bpe.byte_fallback) return mha__json_refuse(json, "byte_fallback", "false with a suffix", err);
    t->bpe.suffix_bytes = strlen(suffix);
    memcpy(t->bpe.suffix, suffix, t->bpe.suffix_bytes);
    if (dropout > 0) return mha__json_refuse(json, "dropout", "null or 0", err);
    return MHA_OK;
}

static mha_status bpe_load(mha_tokenizer *t, const mha__json_obj *json, void *into, mha_error *err)
{
    (void)into;
    const char *unk = NULL;
    MHA__TRY(mha__json_bool(json, "fuse_unk", MHA__OPTIONAL, &t->bpe.fuse_unk, err));
    MHA__TRY(mha__json_bool(json, "byte_fallback", MHA__OPTIONAL, &t->bpe.byte_fallback, err));
    MHA__TRY(read_affixes(t, json, err));
    MHA__TRY(mha__json_bool(json, "ignore_merges", MHA__OPTIONAL, &t->bpe.ignore_merges, err));
    MHA__TRY(mha__json_string(json, "unk_token", MHA__OPTIONAL, &unk, NULL, err));
    MHA__TRY(mha__vocab_load(t, json, err));
    t->bpe.unk = unk ? mha__vocab_find(&t->vocab, unk, strlen(unk)) : NONE;
    if (unk && t->bpe.unk < 0) return mha__json_refuse(json, "unk_token", "a token of model.vocab", err);
    find_characters(t);
    return load_merges(t, json, err);
}

const mha__model_kind mha__model_bpe = {{"BPE", bpe_load}, bpe_tokenize, NULL};

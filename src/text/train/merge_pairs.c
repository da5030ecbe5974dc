/* merge_pairs.c - merges pairs of tokens until the vocabulary is full (Sennrich, Haddow and Birch 2016).
 *
 * Each distinct pair of adjacent tokens has a count. A heap contains, for each pair, the list of its positions and the
 * count at the time of insertion. The top pair is merged next; if its count has changed, it is reinserted with the new
 * count instead. A merge visits only the positions in the list and updates the counts of adjacent pairs. All merges
 * together therefore take O(n log n) steps for n characters in distinct words.
 *
 * A token is always formed from the same pair, because earlier merges never crossed the ends of its text and therefore
 * split this text the same way everywhere. All positions of a pair thus appear in a single merge, which creates the
 * newer of its two tokens, and a merged pair never appears again. */
#include "base/ctx.h"
#include "text/train/tokenizer_train.h"
#include <string.h>

typedef struct pair {
    int64_t count;
    uint32_t left, right;
    size_t fresh; /* number of new positions; later the index in `places` of the next position to write */
} pair;

/* A heap entry: a pair, its count, and a list of its positions. */
typedef struct waiting {
    int64_t count;
    uint32_t pair, length;
    size_t begin; /* index in `places` */
} waiting;

/* A new position of a pair. */
typedef struct arrival {
    uint32_t pair, at;
} arrival;

typedef struct merging {
    mha_tokenizer_trainer *t;
    mha_error *err;
    mha__pair_table index; /* ids of two tokens -> index of the pair */
    pair *pairs;
    arrival *arrivals;
    uint32_t *touched; /* pairs with new positions */
    uint32_t *places;  /* lists of symbol indices, concatenated */
    waiting *heap;
    char *spelling; /* text of the token being created */
    size_t pairs_count, pairs_room, arrivals_count, arrivals_room, touched_count, touched_room;
    size_t places_count, places_room, heap_count, heap_room, spelling_room;
} merging;

/* Grows a list by `more` items. */
#define GROW(m, owner, items, more)                                                                        \
    mha__items_grow((m)->t->ctx, &(owner)->items, &(owner)->items##_room, (owner)->items##_count + (more), \
                    sizeof *(owner)->items, (m)->err)

/* ---- the heap: highest count first; ties by lowest ids ---- */

static bool is_before(const merging *m, const waiting *a, const waiting *b)
{
    if (a->count != b->count) return a->count > b->count;
    const pair *p = &m->pairs[a->pair];
    const pair *q = &m->pairs[b->pair];
    if (p->left != q->left) return p->left < q->left;
    return p->right < q->right;
}

static mha_status push(merging *m, waiting w)
{
    MHA__TRY(GROW(m, m, heap, 1));
    size_t at = m->heap_count++;
    for (; at > 0 && is_before(m, &w, &m->heap[(at - 1) / 2]); at = (at - 1) / 2)
        m->heap[at] = m->heap[(at - 1) / 2];
    m->heap[at] = w;
    return MHA_OK;
}

static waiting pop(merging *m)
{
    const waiting top = m->heap[0];
    const waiting moving = m->heap[--m->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < m->heap_count; at = child) {
        if (child + 1 < m->heap_count && is_before(m, &m->heap[child + 1], &m->heap[child])) child++;
        if (!is_before(m, &m->heap[child], &moving)) break;
        m->heap[at] = m->heap[child];
    }
    m->heap[at] = moving;
    return top;
}

/* ---- counts and positions of pairs ---- */

static mha_status find_pair(merging *m, uint32_t left, uint32_t right, uint32_t *number)
{
    const int64_t found = mha__pairs_get(&m->index, left, right);
    *number = found >= 0 ? (uint32_t)found : (uint32_t)m->pairs_count;
    if (found >= 0) return MHA_OK;
    MHA__TRY(GROW(m, m, pairs, 1));
    MHA__TRY(mha__pairs_put(&m->index, left, right, *number, m->err));
    m->pairs[m->pairs_count++] = (pair){.left = left, .right = right};
    return MHA_OK;
}

/* Records that the symbol at `at` and its successor are now adjacent, `count` times. */
static mha_status arrive(merging *m, uint32_t at, int64_t count)
{
    const mha__symbol *s = m->t->symbols;
    uint32_t number;
    MHA__TRY(find_pair(m, s[at].id, s[s[at].next].id, &number));
    MHA__TRY(GROW(m, m, arrivals, 1));
    MHA__TRY(GROW(m, m, touched, 1));
    if (m->pairs[number].fresh++ == 0) m->touched[m->touched_count++] = number;
    m->pairs[number].count += count;
    m->arrivals[m->arrivals_count++] = (arrival){number, at};
    return MHA_OK;
}

static mha_status leave(merging *m, uint32_t left, uint32_t right, int64_t count)
{
    uint32_t number;
    MHA__TRY(find_pair(m, left, right, &number));
    m->pairs[number].count -= count;
    return MHA_OK;
}

/* Reserves a list for the new positions of a pair and adds it to the heap. */
static mha_status begin_list(merging *m, uint32_t number)
{
    pair *p = &m->pairs[number];
    const waiting w = {p->count, number, (uint32_t)p->fresh, m->places_count};
    m->places_count += w.length;
    p->fresh = w.begin;
    return w.count > 0 ? push(m, w) : MHA_OK;
}

/* Groups the recorded positions into one list per pair. */
static mha_status settle(merging *m)
{
    MHA__TRY(GROW(m, m, places, m->arrivals_count));
    for (size_t i = 0; i < m->touched_count; i++)
        MHA__TRY(begin_list(m, m->touched[i]));
    for (size_t i = 0; i < m->arrivals_count; i++)
        m->places[m->pairs[m->arrivals[i].pair].fresh++] = m->arrivals[i].at;
    for (size_t i = 0; i < m->touched_count; i++)
        m->pairs[m->touched[i]].fresh = 0;
    m->touched_count = m->arrivals_count = 0;
    return MHA_OK;
}

static mha_status count_pairs(merging *m)
{
    const mha_tokenizer_trainer *t = m->t;
    for (size_t i = 0; i < t->symbol_count; i++)
        if (t->symbols[i].next != MHA__TRAIN_NONE) MHA__TRY(arrive(m, (uint32_t)i, t->word_counts[t->symbols[i].word]));
    return settle(m);
}

/* ---- merging one pair ---- */

/* Merges the symbol at `at` with its successor if they form the pair. */
static mha_status join_at(merging *m, const pair *p, uint32_t made, uint32_t at)
{
    mha__symbol *s = m->t->symbols;
    const uint32_t second = s[at].next;
    if (s[at].id != p->left || second == MHA__TRAIN_NONE || s[second].id != p->right) return MHA_OK;
    const int64_t count = m->t->word_counts[s[at].word];
    const uint32_t prev = s[at].prev;
    const uint32_t next = s[second].next;
    s[at].id = made;
    s[at].next = next;
    s[second].id = MHA__TRAIN_NONE;
    if (prev != MHA__TRAIN_NONE) {
        MHA__TRY(leave(m, s[prev].id, p->left, count));
        MHA__TRY(arrive(m, prev, count));
    }
    if (next == MHA__TRAIN_NONE) return MHA_OK;
    s[next].prev = at;
    MHA__TRY(leave(m, p->right, s[next].id, count));
    return arrive(m, at, count);
}

static mha_status join_list(merging *m, const waiting *w, uint32_t made)
{
    const pair p = m->pairs[w->pair]; /* a copy, because m->pairs may be reallocated */
    for (size_t i = 0; i < w->length; i++)
        MHA__TRY(join_at(m, &p, made, m->places[w->begin + i]));
    return MHA_OK;
}

/* ---- new tokens ---- */

/* Sets *made to the id of the token with the combined text of the pair, which may already exist. */
static mha_status make_token(merging *m, const pair *p, uint32_t *made)
{
    mha__strings *vocab = &m->t->vocab;
    const char *prefix = mha__train_prefix(m->t);
    const size_t left = vocab->items[p->left].length;
    size_t right = vocab->items[p->right].length;
    const char *rest = mha__strings_at(vocab, p->right);
    if (right >= strlen(prefix) && memcmp(rest, prefix, strlen(prefix)) == 0) {
        rest += strlen(prefix);
        right -= strlen(prefix);
    }
    MHA__TRY(mha__items_grow(m->t->ctx, &m->spelling, &m->spelling_room, left + right, 1, m->err));
    memcpy(m->spelling, mha__strings_at(vocab, p->left), left);
    memcpy(m->spelling + left, rest, right);
    MHA__TRY(mha__strings_add(vocab, m->spelling, left + right, 0, made, m->err));
    if (vocab->used <= MHA__TRAIN_TOKEN_BYTES) return MHA_OK;
    return mha__fail(
        m->err, MHA_ERR_UNSUPPORTED,
        "tokens must have at most 8 MiB in total (the first %zu exceed it): reduce vocab_size or raise min_frequency",
        vocab->count);
}

static mha_status merge_next(merging *m, const waiting *w)
{
    mha_tokenizer_trainer *t = m->t;
    const pair *p = &m->pairs[w->pair];
    uint32_t made;
    MHA__TRY(make_token(m, p, &made));
    MHA__TRY(GROW(m, t, merges, 1));
    t->merges[t->merges_count++] = (struct mha__merge){p->left, p->right};
    t->trained.rarest = w->count;
    MHA__TRY(join_list(m, w, made));
    return settle(m);
}

static mha_status merge_all(merging *m)
{
    enum { STEP = 64 };
    mha_tokenizer_trainer *t = m->t;
    while ((int64_t)t->vocab.count < t->o.vocab_size && m->heap_count > 0) {
        waiting top = pop(m);
        const int64_t count = m->pairs[top.pair].count;
        if (top.count != count) {
            top.count = count;
            MHA__TRY(push(m, top));
            continue;
        }
        if (count < 1 || count < t->o.min_frequency) break;
        MHA__TRY(merge_next(m, &top));
        if (t->merges_count % STEP == 0)
            MHA__TRY(mha__progress(t->ctx, "merge", (int64_t)t->vocab.count, t->o.vocab_size, m->err));
    }
    return MHA_OK;
}

mha_status mha__train_merge(mha_tokenizer_trainer *t, mha_error *err)
{
    merging m = {.t = t, .err = err, .index = {.ctx = t->ctx}};
    mha_status status = count_pairs(&m);
    if (status == MHA_OK) status = merge_all(&m);
    mha__pairs_free(&m.index);
    mha__free(t->ctx, m.pairs);
    mha__free(t->ctx, m.arrivals);
    mha__free(t->ctx, m.touched);
    mha__free(t->ctx, m.places);
    mha__free(t->ctx, m.heap);
    mha__free(t->ctx, m.spelling);
    return status;
}

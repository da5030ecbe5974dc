/* unigram.c - implements the Unigram model, which splits a word into the pieces with the highest sum of scores (Kudo
 * 2018, arXiv:1804.10959). A Viterbi search from left to right finds the best path to each position in the word.
 *
 * A character that is not a piece gets the lowest score of all pieces minus 10. Adjacent unknown characters form one
 * token. On ties, the path whose last piece starts leftmost wins, as in the reference. */
#include "base/ctx.h"
#include "base/utf8.h"
#include "text/tokenizer.h"
#include "text/trim_offsets.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Maximum length of a piece, which limits the number of steps per byte of a word. Trained models have pieces of at most
 * 16 characters. */
enum { PIECE_BYTES_MAX = 512 };
static const double UNKNOWN_PENALTY = 10;

/* The best path to a position, and the last piece of that path. */
typedef struct arrival {
    double score;
    uint32_t begin; /* UINT32_MAX = not reachable */
    uint32_t next;  /* set after the search: the end of the piece that starts here */
    int32_t id;
} arrival;

static void arrive(arrival *to, double score, size_t begin, int32_t id)
{
    if (to->begin != UINT32_MAX && score <= to->score) return;
    to->score = score;
    to->begin = (uint32_t)begin;
    to->id = id;
}

/* Extends the path from `at` by every piece that begins there. */
static void depart(const mha__unigram *u, const char *p, size_t n, size_t at, arrival *best)
{
    uint32_t code;
    size_t character = (size_t)mha__utf8_read(p + at, n - at, &code);
    bool known = false; /* true if the character itself is a piece */
    int64_t node = 0;
    for (size_t end = at; end < n;) {
        node = mha__pairs_get(&u->trie, (uint32_t)node, (unsigned char)p[end++]);
        if (node < 0) break;
        int32_t id = u->piece[node];
        if (id < 0) continue;
        arrive(&best[end], best[at].score + u->score[id], at, id);
        known = known || end - at == character;
    }
    if (!known) arrive(&best[at + character], best[at].score + u->unk_score, at, u->unk);
}

/* Appends an unknown range as one token. As in the reference, the text of this token is that of the range, not that of
 * the unknown piece, so that the white space of the range is excluded from its offsets. */
static mha_status put_unknown_token(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in, size_t begin,
                                    size_t end)
{
    MHA__TRY(mha__pass_token(pass, in, t->unigram.unk, begin, end));
    if (t->trim.wanted) mha__trim_count(&pass->tokens.items[pass->tokens.count - 1], in->bytes + begin, end - begin);
    return MHA_OK;
}

/* Appends an unknown range as the piece that it forms, as byte tokens or as one unknown token. */
static mha_status put_unknown(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in, size_t begin, size_t end)
{
    const mha__unigram *u = &t->unigram;
    int32_t id = mha__vocab_find(&t->vocab, in->bytes + begin, end - begin); /* joined characters may form a piece */
    bool bytes = id < 0 && u->byte_fallback;
    for (size_t i = begin; bytes && i < end; i++)
        bytes = u->bytes[(unsigned char)in->bytes[i]] >= 0;
    if (id >= 0) return mha__pass_token(pass, in, id, begin, end);
    if (!bytes) return put_unknown_token(t, pass, in, begin, end);
    for (size_t i = begin; i < end; i++)
        MHA__TRY(mha__pass_token(pass, in, u->bytes[(unsigned char)in->bytes[i]], begin, end));
    return MHA_OK;
}

static mha_status unigram_tokenize(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in, const mha__word *word)
{
    const char *p = in->bytes + word->begin;
    size_t n = word->end - word->begin;
    if (n >= UINT32_MAX)
        return mha__fail(pass->err, MHA_ERR_UNSUPPORTED, "words of the text must be below 4 GiB (got %zu bytes)", n);
    MHA__TRY(mha__work_grow(pass, &pass->work, n + 1, sizeof(arrival)));
    arrival *best = pass->work.items;
    for (size_t i = 0; i <= n; i++)
        best[i] = (arrival){.begin = UINT32_MAX};
    for (size_t at = 0; at < n; at++)
        if (((unsigned char)p[at] & 0xC0) != 0x80) depart(&t->unigram, p, n, at, best);
    for (size_t end = n; end > 0; end = best[end].begin)
        best[best[end].begin].next = (uint32_t)end;
    for (size_t at = 0, end; at < n; at = end) {
        end = best[at].next;
        bool unknown = best[end].id == t->unigram.unk;
        while (unknown && end < n && best[best[end].next].id == t->unigram.unk)
            end = best[end].next;
        size_t begin = word->begin + at;
        MHA__TRY(unknown ? put_unknown(t, pass, in, begin, word->begin + end)
                         : mha__pass_token(pass, in, best[end].id, begin, word->begin + end));
    }
    return MHA_OK;
}

/* ---- loading ---- */

static mha_status refuse_piece(size_t index, const char *want, const mha__json *value, mha_error *err)
{
    return mha__fail(err, MHA_ERR_FORMAT, MHA__TOKENIZER_FILE ": model.vocab[%zu] must be %s (got %s)", index, want,
                     mha__json_show(&(mha__quoted){0}, value));
}

/* Validates all pieces before any piece is stored, and sets *bytes to their total length. */
static mha_status measure(const mha__json *list, size_t *bytes, mha_error *err)
{
    *bytes = 0;
    for (mha__json_step i = {0}; mha__json_each(list, &i);) {
        const mha__json *piece = mha__json_item(i.value, 0);
        if (mha__json_size(i.value) != 2 || !mha__json_is(piece, MHA__JSON_STRING) ||
            !mha__json_is_number(mha__json_item(i.value, 1)))
            return refuse_piece(i.index, "[piece, score]", i.value, err);
        size_t n = mha__json_bytes(piece);
        if (n > PIECE_BYTES_MAX || strlen(mha__json_as_text(piece)) != n)
            return refuse_piece(i.index, "a piece of at most 512 bytes without NUL characters", piece, err);
        *bytes += n;
    }
    return MHA_OK;
}

static mha_status add_piece(mha__unigram *u, const char *p, size_t n, int32_t id, uint32_t *nodes, mha_error *err)
{
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t next = mha__pairs_get(&u->trie, node, (unsigned char)p[i]);
        if (next < 0) {
            next = ++*nodes;
            u->piece[next] = -1;
            MHA__TRY(mha__pairs_put(&u->trie, node, (unsigned char)p[i], (uint32_t)next, err));
        }
        node = (uint32_t)next;
    }
    if (n > 0) u->piece[node] = id;
    return MHA_OK;
}

static mha_status load_pieces(mha_tokenizer *t, const mha__json *list, mha_error *err)
{
    double lowest = INFINITY;
    for (mha__json_step i = {0}; mha__json_each(list, &i);) {
        const mha__json *piece = mha__json_item(i.value, 0);
        const char *p = mha__json_as_text(piece);
        const size_t n = mha__json_bytes(piece);
        const int32_t id = (int32_t)i.index;
        const double score = mha__json_as_number(mha__json_item(i.value, 1));
        const mha__vocab_entry *entry;
        MHA__TRY(mha__vocab_add(&t->vocab, p, n, id, &entry, err));
        if (entry->value != id) return refuse_piece(i.index, "a unique piece", piece, err);
        t->unigram.score[id] = score;
        if (score < lowest) lowest = score;
    }
    t->unigram.unk_score = lowest - UNKNOWN_PENALTY;
    return MHA_OK;
}

static mha_status unigram_load(mha_tokenizer *t, const mha__json_obj *json, void *into, mha_error *err)
{
    (void)into;
    mha__unigram *u = &t->unigram;
    const mha__json *list;
    size_t bytes;
    int64_t unk;
    MHA__TRY(mha__json_array(json, "vocab", MHA__REQUIRED, &list, err));
    size_t count = mha__json_size(list);
    MHA__TRY(mha__json_int(json, "unk_id", MHA__REQUIRED, 0, (int64_t)count - 1, &unk, err));
    MHA__TRY(mha__json_bool(json, "byte_fallback", MHA__OPTIONAL, &u->byte_fallback, err));
    MHA__TRY(measure(list, &bytes, err));
    MHA__TRY(mha__vocab_create(t->ctx, count, bytes, &t->room, &t->vocab, err));
    u->unk = (int32_t)unk;
    MHA__TRY(mha__room_take(&t->room, count * sizeof *u->score, err));
    u->score = mha__calloc(t->ctx, count, sizeof *u->score);
    if (!u->score) return mha__no_memory(err, count * sizeof *u->score, "the vocabulary");
    MHA__TRY(load_pieces(t, list, err));
    mha__vocab_find_bytes(&t->vocab, u->bytes);
    return MHA_OK;
}

/* Builds the trie of all pieces, which may need much more memory than the file. */
static mha_status unigram_finish(mha_tokenizer *t, mha_error *err)
{
    mha__unigram *u = &t->unigram;
    const size_t bytes = (t->vocab.used + 1) * sizeof *u->piece; /* at most one node per byte */
    uint32_t nodes = 0;
    u->trie.ctx = t->ctx;
    u->trie.room = &t->room;
    MHA__TRY(mha__room_take(&t->room, bytes, err));
    u->piece = mha__calloc(t->ctx, 1, bytes);
    if (!u->piece) return mha__no_memory(err, bytes, "the vocabulary");
    u->piece[0] = -1;
    for (size_t i = 0; i < t->vocab.count; i++) {
        const mha__vocab_entry *entry = &t->vocab.entries[i];
        MHA__TRY(add_piece(u, t->vocab.bytes + entry->begin, entry->length, entry->value, &nodes, err));
    }
    return MHA_OK;
}

const mha__model_kind mha__model_unigram = {{"Unigram", unigram_load}, unigram_tokenize, unigram_finish};

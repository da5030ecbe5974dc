/* gguf_merges.c - lists the merges of a vocabulary of SentencePiece, which stores a score per token. */
#include "base/ctx.h"
#include "base/size.h"
#include "io/input_limits.h"
#include "text/gguf/gguf_translation.h"
#include <stdlib.h>
#include <string.h>

typedef struct listing {
    const mha__gguf_words *words;
    mha__vocab vocab;
    mha__gguf_merge *merges; /* NULL while they are counted */
    int64_t count;
    size_t bytes; /* of the merges in tokenizer.json, without quotation marks */
} listing;

mha_status mha__gguf_vocab(const mha__gguf_words *w, mha__vocab *vocab, mha_error *err)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < w->count; i++) {
        bytes += w->bytes[i];
        if (w->bytes[i] > MHA__GGUF_LONGEST)
            return mha__fail(err, MHA_ERR_FORMAT,
                             "%s: tokenizer.ggml.tokens[%lld] must have at most %d bytes (got %zu)",
                             mha__quote(&(mha__quoted){0}, w->path, strlen(w->path)), (long long)i,
                             (int)MHA__GGUF_LONGEST, w->bytes[i]);
    }
    MHA__TRY(mha__vocab_create(w->ctx, (size_t)w->count, bytes, NULL, vocab, err));
    for (int64_t i = 0; i < w->count; i++) {
        const mha__vocab_entry *stored = NULL;
        MHA__TRY(mha__vocab_add(vocab, w->text[i], w->bytes[i], (int32_t)i, &stored, err));
        if (stored->value != (int32_t)i)
            return mha__fail(err, MHA_ERR_FORMAT, "%s: tokenizer.ggml.tokens[%lld] must be unique (got \"%s\" twice)",
                             mha__quote(&(mha__quoted){0}, w->path, strlen(w->path)), (long long)i,
                             mha__quote(&(mha__quoted){0}, w->text[i], w->bytes[i]));
    }
    return MHA_OK;
}

static int32_t characters(const char *text, size_t n)
{
    int32_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* Adds the pairs of tokens that join to a token. */
static void split_token(listing *l, int64_t id, float score)
{
    const char *text = l->words->text[id];
    const size_t n = l->words->bytes[id];
    for (size_t left = 1; left < n; left++) {
        if (((unsigned char)text[left] & 0xC0) == 0x80) continue;
        const int32_t a = mha__vocab_find(&l->vocab, text, left);
        const int32_t b = a < 0 ? -1 : mha__vocab_find(&l->vocab, text + left, n - left);
        if (b < 0) continue;
        if (l->merges)
            l->merges[l->count] = (mha__gguf_merge){.id = (int32_t)id,
                                                    .left_id = a,
                                                    .right_id = b,
                                                    .left_chars = characters(text, left),
                                                    .right_chars = characters(text + left, n - left),
                                                    .score = score};
        l->count++;
        l->bytes += n;
    }
}

static int compare_ids(int32_t a, int32_t b)
{
    return (a > b) - (a < b);
}

/* Highest score first, then the pair with the longer tokens, then the lower ids. */
static int by_score(const void *a, const void *b)
{
    const mha__gguf_merge *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->left_chars != y->left_chars) return x->left_chars > y->left_chars ? -1 : 1;
    if (x->right_chars != y->right_chars) return x->right_chars > y->right_chars ? -1 : 1;
    if (x->id != y->id) return compare_ids(x->id, y->id);
    return x->left_id != y->left_id ? compare_ids(x->left_id, y->left_id) : compare_ids(x->right_id, y->right_id);
}

static void split_all(listing *l, const float *scores)
{
    l->count = 0;
    for (int64_t id = 0; id < l->words->count; id++)
        split_token(l, id, scores[id]);
}

/* Bounds the memory for the merges, which may exceed that of the tokens by far: tokenizer.json has the same limits. */
static mha_status check_size(const listing *l, mha_error *err)
{
    const int64_t max = (int64_t)MHA__JSON_NODES / 3;
    if (l->count <= max && l->bytes <= MHA__JSON_BYTES) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT,
                     "%s: tokenizer.ggml.tokens must have at most %lld pairs that join to a token, of %zu bytes (got "
                     "%lld of %zu bytes)",
                     mha__quote(&(mha__quoted){0}, l->words->path, strlen(l->words->path)), (long long)max,
                     MHA__JSON_BYTES, (long long)l->count, l->bytes);
}

static mha_status list_merges(listing *l, const float *scores, mha_error *err)
{
    MHA__TRY(mha__gguf_vocab(l->words, &l->vocab, err));
    split_all(l, scores);
    MHA__TRY(check_size(l, err));
    l->merges = mha__calloc(l->words->ctx, (size_t)l->count + 1, sizeof *l->merges);
    if (!l->merges) return mha__no_memory(err, (size_t)l->count * sizeof *l->merges, "the merges of a tokenizer");
    split_all(l, scores);
    qsort(l->merges, (size_t)l->count, sizeof *l->merges, by_score);
    return MHA_OK;
}

mha_status mha__gguf_merges(const mha__gguf_words *words, const float *scores, mha__gguf_merge **merges, int64_t *count,
                            mha_error *err)
{
    listing l = {.words = words};
    const mha_status status = list_merges(&l, scores, err);
    mha__vocab_free(&l.vocab);
    if (status != MHA_OK) mha__free(words->ctx, l.merges);
    *merges = status == MHA_OK ? l.merges : NULL;
    *count = l.count;
    return status;
}

/* gguf_scores.c - computes scores of tokens from the merges of a BPE, and checks that a reader that merges by these
 * scores has the same merges. */
#include "base/ctx.h"
#include "text/gguf/gguf_translation.h"
#include <string.h>

/* The two sides of a merge, whose form in the file is "LEFT RIGHT" or ["LEFT", "RIGHT"]. */
typedef struct sides {
    const char *left, *right;
    size_t left_bytes, right_bytes;
} sides;

static sides sides_of(const mha__json *merge)
{
    const mha__json *a = mha__json_item(merge, 0), *b = mha__json_item(merge, 1);
    if (!mha__json_is(merge, MHA__JSON_STRING))
        return (sides){mha__json_as_text(a), mha__json_as_text(b), mha__json_bytes(a), mha__json_bytes(b)};
    const char *text = mha__json_as_text(merge), *space = memchr(text, ' ', mha__json_bytes(merge));
    const size_t n = space ? (size_t)(space - text) : 0;
    return (sides){text, space ? space + 1 : text, n, space ? mha__json_bytes(merge) - n - 1 : 0};
}

/* Fails with the rule for the merges. */
static mha_status refuse(const char *rule, const mha__json *got, mha_error *err)
{
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "tokenizer.json: model.merges must be %s in a GGUF file (got %s)", rule,
                     mha__json_show(&(mha__quoted){0}, got));
}

/* Scores each token by its first merge. */
static void score_tokens(const mha__vocab *vocab, const mha__json *merges, float *score)
{
    for (mha__json_step i = {0}; mha__json_each(merges, &i);) {
        const sides s = sides_of(i.value);
        char joined[2 * MHA__GGUF_LONGEST];
        if (!s.left || !s.right || s.left_bytes > MHA__GGUF_LONGEST || s.right_bytes > MHA__GGUF_LONGEST) continue;
        memcpy(joined, s.left, s.left_bytes);
        memcpy(joined + s.left_bytes, s.right, s.right_bytes);
        const int32_t id = mha__vocab_find(vocab, joined, s.left_bytes + s.right_bytes);
        if (id >= 0 && score[id] == 0) score[id] = -(float)(i.index + 1);
    }
}

/* Compares the merges with those of a reader. */
static mha_status compare(const mha__vocab *vocab, const mha__json *merges, const mha__gguf_merge *list, mha_error *err)
{
    for (mha__json_step i = {0}; mha__json_each(merges, &i);) {
        const sides s = sides_of(i.value);
        if (!s.left || !s.right || mha__vocab_find(vocab, s.left, s.left_bytes) != list[i.index].left_id ||
            mha__vocab_find(vocab, s.right, s.right_bytes) != list[i.index].right_id)
            return refuse("in the order of one score per token", i.value, err);
    }
    return MHA_OK;
}

mha_status mha__gguf_scores(const mha__gguf_words *words, const mha__json *merges, float *score, mha_error *err)
{
    mha__gguf_merge *list = NULL;
    mha__vocab vocab = {0};
    int64_t count = 0;
    mha_status status = mha__gguf_vocab(words, &vocab, err);
    if (status == MHA_OK) {
        score_tokens(&vocab, merges, score);
        status = mha__gguf_merges(words, score, &list, &count, err);
    }
    if (status == MHA_OK && ((size_t)count != mha__json_size(merges) || count >= 1 << 24))
        status = refuse("all pairs of tokens that join to a token", merges, err);
    if (status == MHA_OK) status = compare(&vocab, merges, list, err);
    mha__free(words->ctx, list);
    mha__vocab_free(&vocab);
    return status;
}

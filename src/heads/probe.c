/* probe.c - the probe texts: natural text repeats itself too rarely to show heads that look for repetition.
 *
 * A probe text is [first] r r [last]: r is a row of random tokens from the middle half of the vocabulary, so that only
 * the repetition means anything; first and last are the special tokens that the tokenizer puts around a text.
 */
#include <string.h>

#include "base/ctx.h"
#include "base/error.h"
#include "base/rng.h"
#include "heads/heads.h"

enum { DRAWS = 4, PERIOD = 16, MOST_TEXTS = 4096, TRIES = 64 };

typedef struct probe {
    const mha_model *model;
    mha_heads *heads;
    int64_t batch, length, start, period;
} probe;

static int on_attention(void *user, int64_t layer, int64_t count, const float *probs)
{
    const probe *p = user;
    bool causal = mha_model_describe(p->model)->causal;
    mha__head_stats *stats = p->heads->stats + p->heads->first[layer];
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < count; h++)
            mha__head_stats_add_probe(&stats[h], p->length, p->start, p->period, causal,
                                      probs + (b * count + h) * p->length * p->length);
    return 0;
}

/* A token of the middle half that means something to the tokenizer; a special or unused one after TRIES misses. */
static int32_t draw_token(const mha_tokenizer *tokenizer, int64_t vocab, uint64_t *state)
{
    int32_t id = 0;
    for (int i = 0; i < TRIES; i++) {
        id = (int32_t)(vocab / 4 + (int64_t)(mha__splitmix(state) % (uint64_t)(vocab / 2)));
        if (mha_tokenizer_token(tokenizer, id) && !mha_tokenizer_is_special(tokenizer, id)) break;
    }
    return id;
}

static void fill_row(int32_t *row, const mha__frame *f, const int32_t *r, int64_t period)
{
    memcpy(row, f->before, (size_t)f->before_count * sizeof *row);
    row += f->before_count;
    memcpy(row, r, (size_t)period * sizeof *row);
    memcpy(row + period, r, (size_t)period * sizeof *row);
    memcpy(row + 2 * period, f->after, (size_t)f->after_count * sizeof *row);
}

/* Runs the texts r [texts, period], framed. */
static mha_status run_probe(const mha_model *model, mha_heads *heads, const int32_t *r, int64_t texts, int64_t period,
                            mha_error *err)
{
    const mha__frame *f = &heads->frame;
    probe p = {model, heads, texts, f->before_count + 2 * period + f->after_count, f->before_count, period};
    size_t bytes = (size_t)(texts * p.length) * sizeof(int32_t);
    int32_t *ids = mha__alloc(heads->ctx, bytes);
    if (!ids) return mha__no_memory(err, bytes, "probe texts");
    for (int64_t b = 0; b < texts; b++)
        fill_row(ids + b * p.length, f, r + b * period, period);
    mha_model_input input = {.size = sizeof input, .batch = texts, .length = p.length, .ids = ids};
    mha_model_output output = {.size = sizeof output, .on_attention = on_attention, .user = &p};
    mha_status status = mha_model_forward(model, &input, &output, err);
    mha__free(heads->ctx, ids);
    return status;
}

static mha_status check_wanted(const mha_head_probe *wanted, int64_t room, int64_t vocab, mha_error *err)
{
    if (wanted->texts < 1 || wanted->texts > MOST_TEXTS)
        return mha__fail(err, MHA_ERR_ARG, "probe.texts = %lld is not in 1..%d", (long long)wanted->texts, MOST_TEXTS);
    if (wanted->period < 1 || wanted->period > room / 2)
        return mha__fail(err, MHA_ERR_ARG, "probe.period = %lld is not in 1..%lld", (long long)wanted->period,
                         (long long)(room / 2));
    for (int64_t i = 0; i < wanted->texts * wanted->period; i++)
        if (wanted->ids[i] < 0 || wanted->ids[i] >= vocab)
            return mha__fail(err, MHA_ERR_ARG, "probe.ids[%lld] = %d is not in 0..%lld", (long long)i,
                             (int)wanted->ids[i], (long long)vocab - 1);
    return MHA_OK;
}

mha_status mha__heads_probe(const mha_model *model, mha_heads *heads, const mha_head_probe *wanted, uint64_t seed,
                            mha_error *err)
{
    const mha_model_info *info = mha_model_describe(model);
    int64_t room = info->max_positions - heads->frame.before_count - heads->frame.after_count;
    if (wanted->ids) {
        MHA__TRY(check_wanted(wanted, room, info->vocab, err));
        return run_probe(model, heads, wanted->ids, wanted->texts, wanted->period, err);
    }
    if (room < 2 * PERIOD || info->vocab < 4 * PERIOD) return MHA_OK;
    int32_t r[DRAWS * PERIOD];
    for (int i = 0; i < DRAWS * PERIOD; i++)
        r[i] = draw_token(mha_model_tokenizer(model), info->vocab, &seed);
    return run_probe(model, heads, r, DRAWS, PERIOD, err);
}

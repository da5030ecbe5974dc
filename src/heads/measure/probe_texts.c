/* probe_texts.c - generates and runs the probe texts, which detect heads that attend to repeated tokens. Natural text
 * has too few repetitions for this.
 *
 * A probe text is [first] r r [last]. r is a sequence of random tokens from the middle half of the vocabulary, so that
 * the repetition is its only structure. first and last are the special tokens that the tokenizer puts around a text. */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/measure/head_measures.h"
#include "math/rng_draws.h"
#include <string.h>

enum { DRAWS = 4, PERIOD = 16, TEXTS_MAX = 4096, TRIES = 64 };

typedef struct probe {
    mha_heads *heads;
    int64_t start, period;
    bool causal;
} probe;

static void on_rows(void *user, int64_t layer, const mha_attn_rows *rows)
{
    const probe *p = user;
    mha__head_stats *stats = &p->heads->stats[p->heads->first[layer] + rows->head];
    mha__head_stats_add_probe(stats, p->start, p->period, p->causal, rows);
}

/* Samples a token from the middle half of the vocabulary that is neither special nor unused. After TRIES attempts,
 * returns the last sample. */
static int32_t draw_token(const mha_tokenizer *tokenizer, int64_t vocab, uint64_t *state)
{
    int32_t id = 0;
    for (int i = 0; i < TRIES; i++) {
        id = (int32_t)(vocab / 4 + (int64_t)(mha__splitmix(state) % (uint64_t)(vocab / 2)));
        if (!tokenizer) break;
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

/* Runs the probe texts one after the other, so that sums over the probe texts are bitwise reproducible. */
static mha_status run_probe(const mha_model *model, mha_heads *heads, const mha__frame *f, const int32_t *r,
                            int64_t texts, int64_t period, mha_error *err)
{
    const int64_t length = f->before_count + 2 * period + f->after_count;
    probe p = {heads, f->before_count, period, mha_model_describe(model)->causal};
    const size_t bytes = (size_t)length * sizeof(int32_t);
    int32_t *ids = mha__alloc(heads->ctx, bytes);
    mha_status status = ids ? MHA_OK : mha__no_memory(err, bytes, "a probe text");
    for (int64_t b = 0; b < texts && status == MHA_OK; b++) {
        fill_row(ids, f, r + b * period, period);
        const mha_model_input input = {.size = sizeof input, .batch = 1, .length = length, .ids = ids};
        const mha_model_output output = {.size = sizeof output, .on_rows = on_rows, .user = &p};
        status = mha_model_forward(model, &input, &output, err);
    }
    mha__free(heads->ctx, ids);
    return status;
}

static mha_status check_wanted(const mha_head_probe *wanted, int64_t room, int64_t vocab, mha_error *err)
{
    if (wanted->texts < 1 || wanted->texts > TEXTS_MAX)
        return mha__fail(err, MHA_ERR_ARG, "probe.texts must be from 1 to %d (got %lld)", TEXTS_MAX,
                         (long long)wanted->texts);
    if (wanted->period < 1 || wanted->period > room / 2)
        return mha__fail(err, MHA_ERR_ARG, "probe.period must be from 1 to %lld (got %lld)", (long long)(room / 2),
                         (long long)wanted->period);
    for (int64_t i = 0; i < wanted->texts * wanted->period; i++)
        if (wanted->ids[i] < 0 || wanted->ids[i] >= vocab)
            return mha__fail(err, MHA_ERR_ARG, "probe.ids[%lld] must be from 0 to %lld (got %d)", (long long)i,
                             (long long)vocab - 1, (int)wanted->ids[i]);
    return MHA_OK;
}

/* Checks that the fields of given texts are 0 if the texts are random. */
static mha_status check_random(const mha_head_probe *wanted, mha_error *err)
{
    const char *name = wanted->texts ? "texts" : "period";
    const int64_t value = wanted->texts ? wanted->texts : wanted->period;
    if (value == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "probe.%s must be 0 if probe.ids is NULL (got %lld)", name, (long long)value);
}

/* Checks and copies the `count` special tokens on one side of r r. */
static mha_status take_side(const char *name, const int32_t *ids, int64_t count, int64_t vocab, int32_t *side,
                            int64_t *side_count, mha_error *err)
{
    if (!ids && count != 0)
        return mha__fail(err, MHA_ERR_ARG, "probe.%s_count must be 0 if probe.%s is NULL (got %lld)", name, name,
                         (long long)count);
    if (!ids) return MHA_OK;
    if (count < 0 || count > MHA__FRAME_TOKENS)
        return mha__fail(err, MHA_ERR_ARG, "probe.%s_count must be from 0 to %d (got %lld)", name, MHA__FRAME_TOKENS,
                         (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return mha__fail(err, MHA_ERR_ARG, "probe.%s[%lld] must be from 0 to %lld (got %d)", name, (long long)i,
                             (long long)vocab - 1, (int)ids[i]);
    memcpy(side, ids, (size_t)count * sizeof *side);
    *side_count = count;
    return MHA_OK;
}

/* Stores the special tokens around the probe texts in *f, and in *room the number of tokens that fit between them. */
static mha_status prepare(const mha_model *model, const mha__frame *frame, const mha_head_probe *wanted, mha__frame *f,
                          int64_t *room, mha_error *err)
{
    const mha_model_info *info = mha_model_describe(model);
    *f = *frame;
    MHA__TRY(take_side("first", wanted->first, wanted->first_count, info->vocab, f->before, &f->before_count, err));
    MHA__TRY(take_side("last", wanted->last, wanted->last_count, info->vocab, f->after, &f->after_count, err));
    *room = info->max_positions - f->before_count - f->after_count;
    return wanted->ids ? check_wanted(wanted, *room, info->vocab, err) : check_random(wanted, err);
}

mha_status mha__heads_probe_check(const mha_model *model, const mha__frame *frame, const mha_head_probe *wanted,
                                  mha_error *err)
{
    mha__frame f;
    int64_t room;
    return prepare(model, frame, wanted, &f, &room, err);
}

mha_status mha__heads_probe(const mha_model *model, mha_heads *heads, const mha__frame *frame,
                            const mha_head_probe *wanted, uint64_t seed, mha_error *err)
{
    const mha_model_info *info = mha_model_describe(model);
    mha__frame f;
    int64_t room;
    MHA__TRY(prepare(model, frame, wanted, &f, &room, err));
    if (wanted->ids) return run_probe(model, heads, &f, wanted->ids, wanted->texts, wanted->period, err);
    if (room < 2 * PERIOD || info->vocab < 4 * PERIOD) return MHA_OK;
    int32_t r[DRAWS * PERIOD];
    for (int i = 0; i < DRAWS * PERIOD; i++)
        r[i] = draw_token(mha_model_tokenizer(model), info->vocab, &seed);
    return run_probe(model, heads, &f, r, DRAWS, PERIOD, err);
}

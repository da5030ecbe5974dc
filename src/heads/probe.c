/* probe.c - the probe texts: natural text repeats itself too rarely to show heads that look for repetition.
 *
 * A probe text is [first] r r [last]: r is a row of random tokens from the middle half of the vocabulary, so that only
 * the repetition means anything; first and last are the special tokens that the tokenizer puts around a text.
 */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/heads.h"

enum { DRAWS = 4, PERIOD = 16, SPECIALS = 8, TRIES = 64 };

/* splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

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

mha_status mha__heads_probe(const mha_model *model, mha_heads *heads, const int32_t *ids, int64_t batch, int64_t length,
                            int64_t start, int64_t period, mha_error *err)
{
    probe p = {model, heads, batch, length, start, period};
    mha_model_input input = {.size = sizeof input, .batch = batch, .length = length, .ids = ids};
    mha_model_output output = {.size = sizeof output, .on_attention = on_attention, .user = &p};
    return mha_model_forward(model, &input, &output, err);
}

/* The special tokens that stand before and after a text. */
typedef struct frame {
    int32_t before[SPECIALS], after[SPECIALS];
    int64_t before_count, after_count;
} frame;

static mha_status find_frame(const mha_tokenizer *tokenizer, frame *f, mha_error *err)
{
    mha_encoding *e;
    *f = (frame){.before_count = 0};
    MHA__TRY(mha_tokenizer_encode(tokenizer, "a", 1, NULL, 0, NULL, &e, err));
    bool inside = false;
    for (int64_t i = 0; i < e->count; i++) {
        if (e->sequence[i] == 0)
            inside = true;
        else if (!inside && f->before_count < SPECIALS)
            f->before[f->before_count++] = e->ids[i];
        else if (inside && f->after_count < SPECIALS)
            f->after[f->after_count++] = e->ids[i];
    }
    mha_encoding_free(e);
    return MHA_OK;
}

/* A token of the middle half that means something to the tokenizer; a special or unused one after TRIES misses. */
static int32_t draw_token(const mha_tokenizer *tokenizer, int64_t vocab, uint64_t *state)
{
    int32_t id = 0;
    for (int i = 0; i < TRIES; i++) {
        id = (int32_t)(vocab / 4 + (int64_t)(next_random(state) % (uint64_t)(vocab / 2)));
        if (mha_tokenizer_token(tokenizer, id) && !mha_tokenizer_is_special(tokenizer, id)) break;
    }
    return id;
}

static void fill_row(int32_t *row, const frame *f, const mha_tokenizer *tokenizer, int64_t vocab, uint64_t *state)
{
    for (int64_t i = 0; i < f->before_count; i++)
        *row++ = f->before[i];
    for (int64_t i = 0; i < PERIOD; i++)
        row[i] = row[i + PERIOD] = draw_token(tokenizer, vocab, state);
    row += 2 * PERIOD;
    for (int64_t i = 0; i < f->after_count; i++)
        *row++ = f->after[i];
}

mha_status mha__heads_draw_probe(const mha_model *model, mha_heads *heads, uint64_t seed, mha_error *err)
{
    frame f;
    int32_t ids[DRAWS * (2 * PERIOD + 2 * SPECIALS)];
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    const mha_model_info *info = mha_model_describe(model);
    MHA__TRY(find_frame(tokenizer, &f, err));
    int64_t length = f.before_count + 2 * PERIOD + f.after_count;
    if (length > info->max_positions || info->vocab < 4 * PERIOD) return MHA_OK;
    for (int64_t d = 0; d < DRAWS; d++)
        fill_row(ids + d * length, &f, tokenizer, info->vocab, &seed);
    return mha__heads_probe(model, heads, ids, DRAWS, length, f.before_count, PERIOD, err);
}

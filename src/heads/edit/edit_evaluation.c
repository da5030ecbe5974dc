/* edit_evaluation.c - compares an edited model with its source: size, quality and speed. */
#include "base/clock.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/data/head_data.h"
#include "heads/edit/edit_struct.h"
#include "heads/edit/keep_list.h"
#include "model/config/family.h"
#include <math.h>
#include <string.h>

/* ---- size ---- */

/* Returns the head counts of all layers together; in an encoder-decoder and in a CLIP model, of all its parts. */
static int64_t all_heads(const mha_model *m)
{
    int64_t heads = 0;
    for (int64_t l = 0; l < m->config.layers; l++)
        heads += m->config.layer_heads[l] + m->config.cross_heads[l];
    if (m->encoder) heads += all_heads(m->encoder);
    return m->vision ? heads + all_heads(m->vision) : heads;
}

static void measure_size(const mha_model *model, int m, mha_edit_evaluation *e)
{
    const mha_model_info *info = mha_model_describe(model);
    e->heads[m] = all_heads(model);
    e->key_heads[m] = info->key_heads_per_layer[0];
    e->value_heads[m] = info->value_heads_per_layer[0];
    e->parameters[m] = info->parameters;
    e->bytes[m] = info->bytes;
    e->kv_bytes_per_token[m] = info->kv_bytes_per_token;
}

/* Returns the rule that the parts of an encoder-decoder or of a CLIP model violate. In these models, and in ViT, a head
 * is as wide as the hidden size divided by their number, except in T5. */
static const char *find_broken_part(const mha_model *m)
{
    const mha__config *c = &m->config;
    const bool free_width = c->family->heads_key != NULL;
    for (int64_t l = 0; l < c->layers; l++)
        if (c->layer_heads[l] != c->heads || (m->encoder && c->cross_heads[l] != c->heads))
            return free_width ? "all layers of both sides must have the same number of heads"
                              : "head_dim must be the hidden size divided by the number of heads";
    if (free_width && c->relative_heads != c->heads) return "all layers of a side must have the same heads";
    const mha_model *other = m->encoder ? m->encoder : m->vision;
    return other ? find_broken_part(other) : NULL;
}

/* Returns true for families whose configuration transformers rejects if the head count does not divide the hidden size,
 * although the width of a head has a key of its own. */
static bool must_divide(const char *family)
{
    static const char *const names[] = {"llama", "gemma2", "gemma3", "gemma3_text"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (strcmp(family, names[n]) == 0) return true;
    return false;
}

static const char *find_broken_rule(const mha_model *m)
{
    const mha_model_info *info = mha_model_describe(m);
    const mha__config *c = &m->config;
    const int64_t heads = info->heads_per_layer[0], keys = info->key_heads_per_layer[0];
    const bool parts = c->family->one_side || c->family->pools || c->channels;
    if (parts && keys == heads) return find_broken_part(m);
    for (int64_t l = 0; l < info->layers; l++) {
        if (info->heads_per_layer[l] != heads || info->key_heads_per_layer[l] != keys)
            return "all layers must have the same number of heads";
        if (info->value_heads_per_layer[l] != keys) return "keys and values must have the same number of heads";
    }
    const bool derived = !mha__head_count_is_free(c);
    if (derived && heads * info->head_dim != info->hidden)
        return "head_dim must be the hidden size divided by the number of heads";
    if (derived && keys != c->kv_heads)
        return c->kv_heads == c->heads ? "each head must have its own keys and values"
                                       : "the number of key/value heads must be num_key_value_heads";
    return must_divide(info->family) && info->hidden % heads
               ? "the hidden size must be a multiple of the number of heads"
               : NULL;
}

/* ---- speed ---- */

enum { BATCH_TOKENS = 2048, ROUNDS = 5, ROUNDS_MAX = 200 };
static const double LONG_ENOUGH = 0.5; /* minimum total time of all rounds [s]; short passes therefore run in many
                                        * rounds */

typedef struct timing {
    const mha_head_data *data;
    int32_t *ids;    /* [tokens] */
    int64_t *starts; /* [texts + 1] */
} timing;

/* Runs one pass over source/target pairs, in the batches of the data. */
static mha_status run_pairs(const timing *t, const mha_model *model, mha_error *err)
{
    for (int64_t b = 0; b < mha__head_data_batches(t->data); b++) {
        mha_model_input input;
        const int64_t *texts;
        MHA__TRY(mha__head_data_any(t->data, b, &input, &texts, err));
        MHA__TRY(mha_model_forward(model, &input, NULL, err));
    }
    return MHA_OK;
}

/* Runs one pass over the packed texts. */
static mha_status run_all(const timing *t, const mha_model *model, mha_error *err)
{
    if (model->encoder) return run_pairs(t, model, err);
    const int64_t count = mha_head_data_count(t->data);
    mha_model_input input = {.size = sizeof input, .ids = t->ids, .starts = t->starts};
    for (int64_t i = 0; i < count; i++) {
        int64_t n = 0, next = 0;
        const int32_t *text = mha_head_data_ids(t->data, i, &n);
        memcpy(t->ids + t->starts[input.batch], text, (size_t)n * sizeof *t->ids);
        t->starts[input.batch + 1] = t->starts[input.batch] + n;
        input.batch++;
        if (i + 1 < count) mha_head_data_ids(t->data, i + 1, &next);
        if (i + 1 < count && t->starts[input.batch] + next <= BATCH_TOKENS) continue;
        MHA__TRY(mha_model_forward(model, &input, NULL, err));
        input.batch = 0;
    }
    return MHA_OK;
}

/* Measures the fastest pass of each model; the models alternate in rounds, so that changes in the machine's load affect
 * both. */
static mha_status run_rounds(const timing *t, mha_ctx *ctx, const mha_model *const models[2], double best[2],
                             mha_error *err)
{
    const double start = mha__now(CLOCK_MONOTONIC);
    for (int round = 0; round < ROUNDS_MAX; round++) {
        if (round >= ROUNDS && mha__now(CLOCK_MONOTONIC) - start > LONG_ENOUGH) break;
        MHA__TRY(mha__progress(ctx, "speed", round < ROUNDS ? round : ROUNDS, ROUNDS, err));
        for (int m = 0; m < 2; m++) {
            const double begin = mha__now(CLOCK_MONOTONIC);
            MHA__TRY(run_all(t, models[m], err));
            best[m] = fmin(best[m], mha__now(CLOCK_MONOTONIC) - begin);
        }
    }
    return mha__progress(ctx, "speed", ROUNDS, ROUNDS, err);
}

static mha_status measure_speed(const mha_model *source, const mha_model *edited, const mha_head_data *data,
                                double speed[2], mha_error *err)
{
    const size_t tokens = (size_t)mha_head_data_tokens(data), texts = (size_t)mha_head_data_count(data);
    double best[2] = {INFINITY, INFINITY};
    const timing t = {data, mha__calloc(source->ctx, tokens, sizeof *t.ids),
                      mha__calloc(source->ctx, texts + 1, sizeof *t.starts)};
    mha_status status =
        t.ids && t.starts ? MHA_OK : mha__no_memory(err, tokens * sizeof *t.ids, "the texts of a speed measurement");
    if (status == MHA_OK) status = run_rounds(&t, source->ctx, (const mha_model *const[]){source, edited}, best, err);
    for (int m = 0; m < 2; m++)
        speed[m] = (double)tokens / best[m];
    mha__free(source->ctx, t.ids);
    mha__free(source->ctx, t.starts);
    return status;
}

/* ---- public function ---- */

static mha_status measure_texts(const mha_model *source, const mha_model *edited, const mha_head_data *data,
                                mha_edit_evaluation *out, mha_error *err)
{
    MHA__TRY(mha_models_compare(source, edited, data, NULL, NULL, &out->comparison, err));
    return measure_speed(source, edited, data, out->tokens_per_second, err);
}

mha_status mha_model_edit_evaluate(const mha_model_edit *edit, const mha_head_data *held_out, mha_edit_evaluation *out,
                                   mha_error *err)
{
    mha_model *whole;
    if (!edit || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_edit_evaluate: %s must not be NULL", edit ? "out" : "edit");
    *out = (mha_edit_evaluation){0};
    MHA__TRY(mha_model_edit_open(edit, &whole, err));
    const mha_model *edited = mha__edit_side(edit, whole);
    measure_size(edit->model, 0, out);
    measure_size(edited, 1, out);
    out->broken_rule = find_broken_rule(whole);
    const mha_status status = held_out ? measure_texts(edit->model, edited, held_out, out, err) : MHA_OK;
    mha_model_free(whole);
    return status;
}

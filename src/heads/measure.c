/* measure.c - runs the model over the texts, one at a time, and gathers the statistics of every head layer by layer. */
#include <string.h>

#include "base/ctx.h"
#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "heads/heads.h"
#include "model/text.h"

/* ---- one text ---- */

typedef struct pass {
    mha_heads *heads;
    int64_t n;
    bool causal;
    uint8_t *kind;   /* [n] */
    double *scratch; /* of mha__head_stats_add */
} pass;

static int on_attention(void *user, int64_t layer, int64_t count, const float *probs)
{
    const pass *p = user;
    mha_heads *heads = p->heads;
    size_t map = (size_t)(p->n * p->n);
    for (int64_t h = 0; h < count; h++)
        mha__head_stats_add(&heads->stats[heads->first[layer] + h], p->n, p->kind, p->causal, probs + (size_t)h * map,
                            p->scratch);
    if (heads->maps) memcpy(heads->maps[layer], probs, (size_t)count * map * sizeof *probs);
    return 0;
}

static mha_status run_pass(const mha_model *model, pass *p, const mha_encoding *e, mha_error *err)
{
    for (int64_t i = 0; i < e->count; i++)
        p->kind[i] = mha__frame_kind(&p->heads->frame, mha_model_tokenizer(model), e->ids[i]);
    mha_model_input input = {
        .size = sizeof input, .batch = 1, .length = e->count, .ids = e->ids, .type_ids = e->type_ids};
    mha_model_output output = {.size = sizeof output, .on_attention = on_attention, .user = p};
    return mha_model_forward(model, &input, &output, err);
}

static mha_status make_maps(mha_heads *heads, int64_t n, mha_error *err)
{
    heads->maps = mha__calloc(heads->ctx, (size_t)heads->layers, sizeof *heads->maps);
    if (!heads->maps) return mha__no_memory(err, (size_t)heads->layers * sizeof *heads->maps, "the maps");
    for (int64_t l = 0; l < heads->layers; l++) {
        size_t bytes;
        bool fits = mha__bytes((int64_t[]){heads->first[l + 1] - heads->first[l], n, n}, 3, sizeof(float), &bytes);
        heads->maps[l] = fits ? mha__alloc(heads->ctx, bytes) : NULL;
        if (!heads->maps[l]) return mha__no_memory(err, fits ? bytes : SIZE_MAX, "the maps of a layer");
    }
    return MHA_OK;
}

static mha_status measure_encoding(const mha_model *model, mha_heads *heads, const mha_encoding *e, mha_error *err)
{
    size_t n = (size_t)e->count, scratch = mha__head_stats_scratch(e->count);
    if (n == 0) return MHA_OK;
    pass p = {.heads = heads,
              .n = e->count,
              .causal = mha_model_describe(model)->causal,
              .kind = mha__alloc(heads->ctx, n),
              .scratch = mha__calloc(heads->ctx, scratch, sizeof(double))};
    mha_status status = p.kind && p.scratch ? run_pass(model, &p, e, err)
                                            : mha__no_memory(err, n + scratch * sizeof(double), "head statistics");
    mha__free(heads->ctx, p.scratch);
    mha__free(heads->ctx, p.kind);
    return status;
}

static mha_status measure_text(const mha_model *model, mha_heads *heads, const mha__text *text,
                               const mha_heads_options *options, mha_error *err)
{
    mha_encoding *e;
    MHA__TRY(mha__text_encode(model, text, options->max_tokens, &e, err));
    mha_status status = options->keep_maps ? make_maps(heads, e->count, err) : MHA_OK;
    if (status == MHA_OK) status = measure_encoding(model, heads, e, err);
    if (options->keep_maps)
        heads->tokens = e; /* freed with the result, also after a failure */
    else
        mha_encoding_free(e);
    return status;
}

/* ---- the call ---- */

static mha_status check(const mha_model *model, const char *const *texts, int64_t count,
                        const mha_heads_options *options, mha_error *err)
{
    if (!model) return mha__fail(err, MHA_ERR_ARG, "model is NULL");
    if (!mha_model_tokenizer(model)) return mha__fail(err, MHA_ERR_ARG, "model was opened without its tokenizer");
    if (count < 1 || !texts)
        return mha__fail(err, MHA_ERR_ARG, "count = %lld: no text to measure on", (long long)count);
    if (options->max_tokens < 0)
        return mha__fail(err, MHA_ERR_ARG, "max_tokens = %lld is negative", (long long)options->max_tokens);
    if (options->keep_maps && count != 1)
        return mha__fail(err, MHA_ERR_ARG, "keep_maps wants one text, not %lld", (long long)count);
    return MHA_OK;
}

static mha_status measure(const mha_model *model, const char *const *texts, int64_t count,
                          const mha_heads_options *options, mha_heads *heads, mha_error *err)
{
    MHA__TRY(mha__frame_find(mha_model_tokenizer(model), &heads->frame, err));
    for (int64_t i = 0; i < count; i++) {
        MHA__TRY(mha__progress(heads->ctx, "measure heads", i, count, err));
        const mha__text text = {texts[i], i, count};
        MHA__TRY(measure_text(model, heads, &text, options, err));
    }
    if (!options->no_probe) MHA__TRY(mha__heads_probe(model, heads, &options->probe, options->seed, err));
    return mha__progress(heads->ctx, "measure heads", count, count, err);
}

mha_status mha_heads_measure(const mha_model *model, const char *const *texts, int64_t count,
                             const mha_heads_options *options, mha_heads **out, mha_error *err)
{
    mha_heads_options own;
    mha_heads *heads;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out is NULL");
    *out = NULL;
    MHA__TRY(mha__options_read(&own, sizeof own, options, "mha_heads_options", err));
    MHA__TRY(check(model, texts, count, &own, err));
    mha_status status = mha__heads_create(model, &heads, err);
    if (status == MHA_OK) status = measure(model, texts, count, &own, heads, err);
    if (status == MHA_OK)
        *out = heads;
    else
        mha_heads_free(heads);
    return status;
}

/* head_data.c - tokenizes texts, sorts them by length and packs them into batches.
 *
 * Tokens are collected in the given order, then copied once into processing order. A batch is a range of the sorted
 * array, so no tokens are copied to run it. The position of each text is stored, so that a text can be found by its
 * index. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "heads/data/head_data_fields.h"
#include <string.h>

enum { BATCH_TOKENS = 2048 };

/* ---- processing order ---- */

/* Sorts texts by length with a stable counting sort, longest first; counts[n] is the position of the next text of n
 * tokens. */
static void sort(mha_head_data *d, const mha__gather *g, int64_t longest, int64_t *counts)
{
    memset(counts, 0, (size_t)(longest + 1) * sizeof *counts);
    for (int64_t i = 0; i < d->count; i++)
        counts[mha__gather_length(g, i)]++;
    for (int64_t n = longest, before = 0; n >= 0; n--) {
        const int64_t here = counts[n];
        counts[n] = before;
        before += here;
    }
    for (int64_t i = 0; i < d->count; i++) {
        d->place[i] = counts[mha__gather_length(g, i)]++;
        d->order[d->place[i]] = i;
    }
}

/* Returns the kind of token `id` (MHA_TOKEN_SPECIAL ...). */
static uint8_t kind_of(const mha_head_data *d, const mha_tokenizer *tokenizer, const mha_head_data_options *options,
                       int32_t id)
{
    uint8_t kind = tokenizer ? mha__frame_kind(&d->frame, tokenizer, id) : 0;
    for (int64_t i = 0; i < options->special_count; i++)
        if (options->special[i] == id) kind |= MHA_TOKEN_SPECIAL;
    return kind;
}

static void lay_tokens(mha_head_data *d, const mha__gather *g, const mha_tokenizer *tokenizer,
                       const mha_head_data_options *options)
{
    d->starts[0] = 0;
    for (int64_t p = 0; p < d->count; p++) {
        const int64_t from = g->starts[d->order[p]], n = mha__gather_length(g, d->order[p]), to = d->starts[p];
        memcpy(d->ids + to, g->ids + from, (size_t)n * sizeof *d->ids);
        memcpy(d->types + to, g->types + from, (size_t)n * sizeof *d->types);
        if (d->segments) memcpy(d->segments + to, g->segments + from, (size_t)n * sizeof *d->segments);
        for (int64_t i = 0; i < n; i++)
            d->kinds[to + i] = kind_of(d, tokenizer, options, d->ids[to + i]);
        d->starts[p + 1] = to + n;
    }
}

/* Returns the number of tokens of the texts from position `first` to `end`, with those of their sources. */
static int64_t tokens_from(const mha_head_data *d, int64_t first, int64_t end)
{
    const int64_t *sources = d->sources.starts;
    return d->starts[end] - d->starts[first] + (sources ? sources[end] - sources[first] : 0);
}

/* Returns the end of the batch that begins at position `first`: the position after its last text. */
static int64_t batch_end(const mha_head_data *d, int64_t first, int64_t limit)
{
    int64_t end = first + 1;
    while (end < d->count && tokens_from(d, first, end + 1) <= limit)
        end++;
    return end;
}

static void cut_batches(mha_head_data *d, int64_t limit)
{
    for (int64_t p = 0, end; p < d->count; p = end) {
        int64_t *starts = d->batch_starts + p + d->batches;
        end = batch_end(d, p, limit);
        for (int64_t n = p; n <= end; n++)
            starts[n - p] = d->starts[n] - d->starts[p];
        d->max_tokens = mha__max64(d->max_tokens, d->starts[end] - d->starts[p]);
        d->max_texts = mha__max64(d->max_texts, end - p);
        d->first[d->batches++] = p;
    }
    d->first[d->batches] = d->count;
}

/* ---- allocation ---- */

static mha_head_data *lay_out(mha__arena *arena, const mha__gather *g, mha_head_data *own)
{
    const size_t count = (size_t)g->count, tokens = (size_t)g->starts[g->count];
    mha_head_data *d = mha__take(arena, 1, sizeof *d);
    own->ids = mha__take(arena, tokens, sizeof *own->ids);
    own->types = mha__take(arena, tokens, sizeof *own->types);
    own->segments = g->segments ? mha__take(arena, tokens, sizeof *own->segments) : NULL;
    own->kinds = mha__take(arena, tokens, 1);
    own->order = mha__take(arena, count, sizeof *own->order);
    own->place = mha__take(arena, count, sizeof *own->place);
    own->starts = mha__take(arena, count + 1, sizeof *own->starts);
    own->first = mha__take(arena, count + 1, sizeof *own->first);
    own->batch_starts = mha__take(arena, count, 2 * sizeof *own->batch_starts);
    return d;
}

static mha_status allocate(mha_ctx *ctx, const mha__gather *g, mha_head_data **out, mha_error *err)
{
    mha__arena arena = {0};
    mha_head_data own = {.ctx = ctx, .count = g->count, .tokens = g->starts[g->count]};
    lay_out(&arena, g, &own);
    arena.base = arena.overflow ? NULL : mha__alloc(ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the tokens of all texts");
    arena.used = 0;
    *out = lay_out(&arena, g, &own);
    **out = own;
    return MHA_OK;
}

static mha_status fill(const mha_model *model, const mha__gather *g, const mha__gather *sources,
                       const mha_head_data_options *options, mha_head_data *d, mha_error *err)
{
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    int64_t longest = 0;
    for (int64_t i = 0; i < g->count; i++)
        longest = mha__max64(longest, mha__gather_length(g, i));
    const size_t bytes = (size_t)(longest + 1) * sizeof(int64_t);
    if (tokenizer) MHA__TRY(mha__frame_find(tokenizer, &d->frame, err));
    int64_t *counts = mha__alloc(d->ctx, bytes);
    if (!counts) return mha__no_memory(err, bytes, "the order of the texts");
    sort(d, g, longest, counts);
    mha__free(d->ctx, counts);
    lay_tokens(d, g, tokenizer, options);
    if (sources) MHA__TRY(mha__pair_sources_lay(d->ctx, sources, d->order, &d->sources, err));
    cut_batches(d, options->batch_tokens ? options->batch_tokens : BATCH_TOKENS);
    if (options->work) d->work = *options->work;
    mha__head_data_tokenized(d, tokenizer);
    return sources ? mha__pair_sources_divide(d->ctx, &d->sources, d->first, d->batches, err) : MHA_OK;
}

/* ---- creation ---- */

/* Checks that a model reads images, or that it reads texts. */
static mha_status check_kind(const mha_model *model, bool images, mha_error *err)
{
    const mha_model_info *info = mha_model_describe(model);
    if (images == (info->image_channels > 0)) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_head_data: model must read %s (got %s)",
                     images ? "images" : "texts", info->family);
}

static mha_status check(const mha_model *model, int64_t count, const void *given, mha_head_data **out,
                        const mha_head_data_options *options, mha_error *err)
{
    if (!model || !out) return mha__fail(err, MHA_ERR_ARG, "%s must not be NULL", model ? "out" : "model");
    if (count < 1)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_data: count must be at least 1 (got %lld)", (long long)count);
    if (!given) return mha__fail(err, MHA_ERR_ARG, "mha_head_data: texts or ids must not be NULL");
    if (options->max_tokens < 0)
        return mha__fail(err, MHA_ERR_ARG, "max_tokens must be at least 0 (got %lld)", (long long)options->max_tokens);
    if (options->batch_tokens < 0)
        return mha__fail(err, MHA_ERR_ARG, "batch_tokens must be at least 0 (got %lld)",
                         (long long)options->batch_tokens);
    if (options->special_count < 0 || (options->special_count > 0 && !options->special))
        return mha__fail(err, MHA_ERR_ARG, "special_count must be the number of entries in special (got %lld)",
                         (long long)options->special_count);
    return MHA_OK;
}

/* Replaces options->work with a copy of the caller's callbacks in `work`. */
static mha_status read_work(mha_head_data_options *options, mha_work *work, mha_error *err)
{
    if (!options->work) return MHA_OK;
    MHA__TRY(mha__options_need(work, sizeof *work, options->work, "mha_work", err));
    if (!(work->begin && work->next && work->add && work->total))
        return mha__fail(err, MHA_ERR_ARG, "mha_work: begin, next, add and total must not be NULL");
    options->work = work;
    return MHA_OK;
}

mha_status mha__head_data_read(const mha_model *model, int64_t count, const void *given,
                               const mha_head_data_options *options, mha_head_data_options *own, mha_work *work,
                               mha_head_data **out, mha_error *err)
{
    if (out) *out = NULL;
    MHA__TRY(mha__options_read(own, sizeof *own, options, "mha_head_data_options", err));
    MHA__TRY(check(model, count, given, out, own, err));
    return read_work(own, work, err);
}

mha_status mha__head_data_make(const mha_model *model, const mha__gather *g, const mha__gather *sources,
                               const mha_head_data_options *options, mha_head_data **out, mha_error *err)
{
    mha_head_data *d = NULL;
    mha_status status = allocate(g->ctx, g, &d, err);
    if (status == MHA_OK) status = fill(model, g, sources, options, d, err);
    if (status == MHA_OK)
        *out = d;
    else
        mha_head_data_free(d);
    return status;
}

/* Builds the data set from the collected tokens if `status` is MHA_OK, and returns the status. Always frees `g`. */
static mha_status finish(const mha_model *model, mha__gather *g, mha_status status,
                         const mha_head_data_options *options, mha_head_data **out, mha_error *err)
{
    if (status == MHA_OK) status = mha__head_data_make(model, g, NULL, options, out, err);
    mha__gather_free(g);
    return status;
}

mha_status mha_head_data_of_texts(const mha_model *model, const char *const *texts, int64_t count,
                                  const mha_head_data_options *options, mha_head_data **out, mha_error *err)
{
    mha_head_data_options own;
    mha_work work;
    MHA__TRY(mha__head_data_read(model, count, texts, options, &own, &work, out, err));
    MHA__TRY(check_kind(model, false, err));
    if (!mha_model_tokenizer(model))
        return mha__fail(err, MHA_ERR_ARG, "model must have a tokenizer (got a model opened with no_tokenizer)");
    if (own.segments) return mha__fail(err, MHA_ERR_ARG, "mha_head_data_options: segments must be NULL for texts");
    mha__gather g = {.ctx = mha_model_ctx(model), .count = count};
    return finish(model, &g, mha__gather_texts(&g, model, texts, own.max_tokens, err), &own, out, err);
}

mha_status mha_head_data_of_ids(const mha_model *model, const int32_t *ids, const int64_t *starts, int64_t count,
                                const mha_head_data_options *options, mha_head_data **out, mha_error *err)
{
    mha_head_data_options own;
    mha_work work;
    MHA__TRY(mha__head_data_read(model, count, ids ? (const void *)starts : NULL, options, &own, &work, out, err));
    MHA__TRY(check_kind(model, false, err));
    mha__gather g = {.ctx = mha_model_ctx(model), .count = count};
    return finish(model, &g, mha__gather_ids(&g, model, ids, starts, &own, err), &own, out, err);
}

/* Adds a token per position of each image. */
static mha_status gather_images(mha__gather *g, const mha_model *model, mha_error *err)
{
    const int64_t tokens = mha_model_describe(model)->max_positions;
    const size_t bytes = (size_t)tokens * sizeof(int32_t);
    int32_t *ids = mha__alloc(g->ctx, bytes);
    if (!ids) return mha__no_memory(err, bytes, "the tokens of an image");
    for (int64_t i = 0; i < tokens; i++)
        ids[i] = (int32_t)i;
    const mha_status status = mha__gather_same(g, model, ids, tokens, err);
    mha__free(g->ctx, ids);
    return status;
}

/* Copies the pixels. All images have the same number of tokens, so they are processed in the given order. */
static mha_status keep_pixels(const mha_model *model, const float *pixels, mha_head_data *d, mha_error *err)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t shape[] = {d->count, info->image_channels, info->image_height, info->image_width};
    size_t bytes;
    const bool fits = mha__bytes(shape, 4, sizeof *pixels, &bytes);
    d->pixels = fits ? mha__alloc(d->ctx, bytes) : NULL;
    if (!d->pixels) return mha__no_memory(err, fits ? bytes : SIZE_MAX, "the pixels of all images");
    memcpy(d->pixels, pixels, bytes);
    d->image = shape[1] * shape[2] * shape[3];
    for (int64_t p = 0; p < d->count; p++)
        d->kinds[d->starts[p]] |= MHA_TOKEN_SPECIAL;
    return MHA_OK;
}

mha_status mha_head_data_of_images(const mha_model *model, const float *pixels, int64_t count,
                                   const mha_head_data_options *options, mha_head_data **out, mha_error *err)
{
    mha_head_data_options own;
    mha_work work;
    MHA__TRY(mha__head_data_read(model, count, pixels, options, &own, &work, out, err));
    MHA__TRY(check_kind(model, true, err));
    if (own.segments || own.special_count)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_data_options: segments and special must be NULL for images");
    mha__gather g = {.ctx = mha_model_ctx(model), .count = count};
    MHA__TRY(finish(model, &g, gather_images(&g, model, err), &own, out, err));
    const mha_status status = keep_pixels(model, pixels, *out, err);
    if (status == MHA_OK) return MHA_OK;
    mha_head_data_free(*out);
    *out = NULL;
    return status;
}

mha_status mha__head_data_copy(const mha_head_data *data, mha_head_data **out, mha_error *err)
{
    const mha__gather sizes = {.count = data->count, .starts = data->starts, .segments = data->segments};
    const size_t count = (size_t)data->count, tokens = (size_t)data->tokens;
    mha_head_data *d = NULL;
    MHA__TRY(allocate(data->ctx, &sizes, &d, err));
    const mha_head_data arrays = *d;
    *d = *data;
    d->ids = memcpy(arrays.ids, data->ids, tokens * sizeof *d->ids);
    d->types = memcpy(arrays.types, data->types, tokens * sizeof *d->types);
    if (data->segments) d->segments = memcpy(arrays.segments, data->segments, tokens * sizeof *d->segments);
    d->kinds = memcpy(arrays.kinds, data->kinds, tokens);
    d->order = memcpy(arrays.order, data->order, count * sizeof *d->order);
    d->place = memcpy(arrays.place, data->place, count * sizeof *d->place);
    d->starts = memcpy(arrays.starts, data->starts, (count + 1) * sizeof *d->starts);
    d->first = memcpy(arrays.first, data->first, ((size_t)data->batches + 1) * sizeof *d->first);
    d->batch_starts =
        memcpy(arrays.batch_starts, data->batch_starts, (count + (size_t)data->batches) * sizeof *d->batch_starts);
    *out = d;
    return MHA_OK;
}

void mha__head_data_replace(mha_head_data *d, int64_t text, int64_t at, int32_t id, uint8_t kind)
{
    const int64_t token = d->starts[d->place[text]] + at;
    d->ids[token] = id;
    d->kinds[token] = kind;
}

void mha__head_data_tokenized(mha_head_data *d, const mha_tokenizer *tokenizer)
{
    d->texts_hash = mha__head_data_texts_hash(d, tokenizer);
}

void mha_head_data_free(mha_head_data *data)
{
    if (!data) return;
    mha__free(data->ctx, data->pixels);
    mha__pair_sources_free(data->ctx, &data->sources);
    mha__free(data->ctx, data);
}

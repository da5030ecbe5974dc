/* batch_packer.c - packs a subset of the texts of a data set into batches. */
#include "heads/data/batch_packer.h"

#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include <string.h>

int64_t mha__packer_room(const mha__packer *p)
{
    return mha__max64(p->max, mha__head_data_longest(p->data));
}

static void lay_out(mha__arena *arena, mha__packer *p, int64_t texts)
{
    const size_t tokens = (size_t)mha__packer_room(p);
    p->order = mha__take(arena, (size_t)texts, sizeof *p->order);
    p->starts = mha__take(arena, (size_t)texts + 1, sizeof *p->starts);
    p->ids = mha__take(arena, tokens, sizeof *p->ids);
    p->types = mha__take(arena, tokens, sizeof *p->types);
    p->labels = mha__take(arena, tokens, sizeof *p->labels);
    const size_t images = tokens / (size_t)mha__head_data_longest(p->data), bytes = mha__head_data_image_bytes(p->data);
    p->pixels = bytes ? mha__take(arena, images, bytes) : NULL;
    const int64_t source = mha__head_data_max_source(p->data);
    if (!source) return;
    p->source_ids = mha__take(arena, (size_t)mha__max64(p->max, source), sizeof *p->source_ids);
    p->source_starts = mha__take(arena, (size_t)texts + 1, sizeof *p->source_starts);
}

mha_status mha__packer_create(mha_ctx *ctx, const mha_head_data *data, int64_t texts, int64_t max, mha__packer *p,
                              mha_error *err)
{
    mha__arena arena = {0};
    const bool pairs = mha__head_data_max_source(data) > 0;
    *p = (mha__packer){.data = data, .max = pairs ? max : mha__min64(max, mha_head_data_tokens(data))};
    lay_out(&arena, p, texts);
    arena.base = arena.overflow ? NULL : mha__alloc(ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a batch of texts");
    arena.used = 0;
    lay_out(&arena, p, texts);
    return MHA_OK;
}

void mha__packer_free(mha_ctx *ctx, mha__packer *p)
{
    mha__free(ctx, p->order); /* `order` is the first array in the single allocation */
}

static int64_t length_of(const mha__packer *p, int64_t place)
{
    int64_t length = 0;
    mha_head_data_ids(p->data, p->text[place], &length);
    return length;
}

/* Sorts by length, longest first, with a stable merge sort; `room` is scratch for count / 2 elements. */
static void sort(const mha__packer *p, int64_t *order, int64_t *room, int64_t count)
{
    const int64_t half = count / 2;
    if (count < 2) return;
    sort(p, order, room, half);
    sort(p, order + half, room, count - half);
    memcpy(room, order, (size_t)half * sizeof *room);
    for (int64_t a = 0, b = half, to = 0; a < half; to++)
        order[to] = b < count && length_of(p, order[b]) > length_of(p, room[a]) ? order[b++] : room[a++];
}

void mha__packer_begin(mha__packer *p, const int64_t *text, int64_t count)
{
    p->text = text;
    p->count = count;
    p->next = 0;
    for (int64_t i = 0; i < count; i++)
        p->order[i] = i;
    sort(p, p->order, p->starts, count);
}

/* Returns the number of tokens of a text, with those of its source. */
static int64_t cost_of(const mha__packer *p, int64_t place)
{
    int64_t source;
    mha__head_data_source(p->data, p->text[place], &source);
    return length_of(p, place) + source;
}

/* Returns the end of the next batch: one past its last text. */
static int64_t batch_end(const mha__packer *p)
{
    int64_t end = p->next, tokens = 0;
    while (end < p->count && (end == p->next || tokens + cost_of(p, p->order[end]) <= p->max))
        tokens += cost_of(p, p->order[end++]);
    return end;
}

bool mha__packer_is_whole(const mha__packer *p)
{
    return p->next == 0 && batch_end(p) == p->count;
}

/* Copies image n of a batch. */
static void put_image(mha__packer *p, int64_t text, int64_t n)
{
    const size_t bytes = mha__head_data_image_bytes(p->data);
    memcpy((char *)p->pixels + (size_t)n * bytes, mha__head_data_pixels(p->data, text), bytes);
    if (p->labeled) p->labels[n] = p->labeled[p->label_at[text]];
}

static void put(mha__packer *p, int64_t text, int64_t at)
{
    int64_t length;
    const int32_t *ids = mha_head_data_ids(p->data, text, &length);
    const size_t bytes = (size_t)length * sizeof *ids;
    memcpy(p->ids + at, ids, bytes);
    memcpy(p->types + at, mha__head_data_types(p->data, text), bytes);
    if (p->labeled) memcpy(p->labels + at, p->labeled + p->label_at[text], bytes);
}

/* Copies the source of pair n of a batch, and the tokens that its target predicts. */
static void put_pair(mha__packer *p, int64_t text, int64_t n, int64_t at)
{
    int64_t length, count;
    const int32_t *ids = mha_head_data_ids(p->data, text, &count);
    const int32_t *source = mha__head_data_source(p->data, text, &length);
    int64_t *starts = p->source_starts + n;
    if (n == 0) starts[0] = 0;
    memcpy(p->source_ids + starts[0], source, (size_t)length * sizeof *source);
    starts[1] = starts[0] + length;
    memcpy(p->labels + at, ids + 1, (size_t)(count - 1) * sizeof *ids);
    p->labels[at + count - 1] = MHA_IGNORE;
}

bool mha__packer_next(mha__packer *p, mha__packed *batch)
{
    const int64_t first = p->next, end = batch_end(p);
    if (first == end) return false;
    int64_t tokens = 0;
    for (int64_t n = first; n < end; n++) {
        const int64_t place = p->order[n];
        p->starts[n - first] = tokens;
        if (p->pixels)
            put_image(p, p->text[place], n - first);
        else
            put(p, p->text[place], tokens);
        if (p->source_ids) put_pair(p, p->text[place], n - first, tokens);
        tokens += length_of(p, place);
    }
    p->starts[end - first] = tokens;
    p->next = end;
    *batch = (mha__packed){.input = {.size = sizeof batch->input,
                                     .batch = end - first,
                                     .ids = p->pixels ? NULL : p->ids,
                                     .type_ids = p->pixels ? NULL : p->types,
                                     .pixels = p->pixels,
                                     .starts = p->starts},
                           .place = p->order + first,
                           .labels = p->labeled || p->source_ids ? p->labels : NULL,
                           .tokens = tokens};
    if (!p->source_ids) return true;
    p->source = (mha_model_input){
        .size = sizeof p->source, .batch = end - first, .ids = p->source_ids, .starts = p->source_starts};
    batch->input.source = &p->source;
    return true;
}

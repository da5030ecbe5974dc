/* token_list.c - checks, truncates and appends the tokens of texts or ids. */
#include "heads/data/tokens/token_list.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "model/model_text.h"
#include <stdbool.h>
#include <string.h>

enum { FIRST_ROOM = 4096 };

void mha__gather_free(mha__gather *g)
{
    mha__free(g->ctx, g->ids);
    mha__free(g->ctx, g->types);
    mha__free(g->ctx, g->segments);
    mha__free(g->ctx, g->starts);
}

static mha_status grow_one(const mha__gather *g, int64_t used, int64_t room, int32_t **array, mha_error *err)
{
    size_t bytes = 0;
    const bool fits = mha__bytes(&room, 1, sizeof **array, &bytes);
    int32_t *larger = fits ? mha__alloc(g->ctx, bytes) : NULL;
    if (!larger) return mha__no_memory(err, fits ? bytes : SIZE_MAX, "the tokens of all texts");
    if (used > 0) memcpy(larger, *array, (size_t)used * sizeof **array);
    mha__free(g->ctx, *array);
    *array = larger;
    return MHA_OK;
}

static mha_status make_room(mha__gather *g, int64_t used, int64_t more, bool segments, mha_error *err)
{
    if (more <= g->room - used) return MHA_OK;
    const int64_t room = mha__max64(mha__max64(FIRST_ROOM, used + more), g->room <= INT64_MAX / 2 ? 2 * g->room : 0);
    MHA__TRY(grow_one(g, used, room, &g->ids, err));
    MHA__TRY(grow_one(g, used, room, &g->types, err));
    if (segments) MHA__TRY(grow_one(g, used, room, &g->segments, err));
    g->room = room;
    return MHA_OK;
}

/* The tokens of one text. types NULL = all types are 0; segments NULL = no segments. */
typedef struct piece {
    const int32_t *ids, *types, *segments;
    int64_t length;
} piece;

static mha_status check_ids(const mha__gather *g, const mha_model *model, int64_t text, const piece *p, mha_error *err)
{
    const mha_model_info *info = mha_model_describe(model);
    const long long number = (long long)text + 1, count = (long long)g->count;
    const int64_t vocab = info->image_channels ? info->max_positions : info->vocab;
    if (p->length < 1)
        return mha__fail(err, MHA_ERR_ARG, "text %lld of %lld must have at least one token (got none)", number, count);
    for (int64_t i = 0; i < p->length; i++) {
        if (p->ids[i] < 0 || p->ids[i] >= vocab)
            return mha__fail(err, MHA_ERR_ARG, "text %lld of %lld: ids[%lld] must be from 0 to %lld (got %d)", number,
                             count, (long long)i, (long long)vocab - 1, (int)p->ids[i]);
        if (p->types && (p->types[i] < 0 || p->types[i] >= info->type_vocab))
            return mha__fail(
                err, MHA_ERR_ARG,
                "text %lld of %lld: the segment of token %lld must be a token type from 0 to %lld (got %d)", number,
                count, (long long)i, (long long)info->type_vocab - 1, (int)p->types[i]);
    }
    return MHA_OK;
}

static void put(int32_t *to, const int32_t *from, int64_t length)
{
    if (from)
        memcpy(to, from, (size_t)length * sizeof *to);
    else
        memset(to, 0, (size_t)length * sizeof *to);
}

static mha_status append(mha__gather *g, const mha_model *model, int64_t text, const piece *p, mha_error *err)
{
    const int64_t used = g->starts[text];
    MHA__TRY(check_ids(g, model, text, p, err));
    MHA__TRY(make_room(g, used, p->length, p->segments != NULL, err));
    put(g->ids + used, p->ids, p->length);
    put(g->types + used, p->types, p->length);
    if (p->segments) put(g->segments + used, p->segments, p->length);
    g->starts[text + 1] = used + p->length;
    return MHA_OK;
}

static mha_status make_starts(mha__gather *g, mha_error *err)
{
    size_t bytes = SIZE_MAX;
    const bool fits = g->count < INT64_MAX && mha__bytes(&(int64_t){g->count + 1}, 1, sizeof *g->starts, &bytes);
    g->starts = fits ? mha__alloc(g->ctx, bytes) : NULL;
    if (!g->starts) return mha__no_memory(err, bytes, "the starts of texts");
    g->starts[0] = 0;
    return MHA_OK;
}

mha_status mha__gather_texts(mha__gather *g, const mha_model *model, const char *const *texts, int64_t max_tokens,
                             mha_error *err)
{
    mha_status status = make_starts(g, err);
    for (int64_t i = 0; i < g->count && status == MHA_OK; i++) {
        mha_encoding *e = NULL;
        status = mha__text_encode(model, &(mha__text){texts[i], i, g->count}, max_tokens, &e, err);
        const bool typed = mha_model_describe(model)->type_vocab > 0;
        if (status == MHA_OK)
            status = append(g, model, i, &(piece){e->ids, typed ? e->type_ids : NULL, NULL, e->count}, err);
        mha_encoding_free(e);
    }
    return status;
}

mha_status mha__gather_ids(mha__gather *g, const mha_model *model, const int32_t *ids, const int64_t *starts,
                           const mha_head_data_options *options, mha_error *err)
{
    const bool typed = mha_model_describe(model)->type_vocab > 1;
    MHA__TRY(make_starts(g, err));
    if (starts[0] != 0) return mha__fail(err, MHA_ERR_ARG, "starts[0] must be 0 (got %lld)", (long long)starts[0]);
    for (int64_t i = 0; i < g->count; i++) {
        if (starts[i + 1] <= starts[i])
            return mha__fail(err, MHA_ERR_ARG, "starts[%lld] must be above %lld, the previous start (got %lld)",
                             (long long)i + 1, (long long)starts[i], (long long)starts[i + 1]);
        const int64_t length = starts[i + 1] - starts[i];
        const int32_t *segments = options->segments ? options->segments + starts[i] : NULL;
        const piece p = {.ids = ids + starts[i],
                         .types = typed ? segments : NULL,
                         .segments = segments,
                         .length =
                             mha__text_truncate(model, &(mha__text){NULL, i, g->count}, length, options->max_tokens)};
        MHA__TRY(append(g, model, i, &p, err));
    }
    return MHA_OK;
}

mha_status mha__gather_same(mha__gather *g, const mha_model *model, const int32_t *ids, int64_t length, mha_error *err)
{
    MHA__TRY(make_starts(g, err));
    for (int64_t i = 0; i < g->count; i++)
        MHA__TRY(append(g, model, i, &(piece){.ids = ids, .length = length}, err));
    return MHA_OK;
}

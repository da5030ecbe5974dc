/* gather.c - tokens of texts or ids, checked, cut and appended. */
#include "heads/gather.h"

#include <string.h>

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "model/text.h"

enum { FIRST_ROOM = 4096 };

void mha__gather_free(mha__gather *g)
{
    mha__free(g->ctx, g->ids);
    mha__free(g->ctx, g->types);
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

static mha_status make_room(mha__gather *g, int64_t used, int64_t more, mha_error *err)
{
    if (more <= g->room - used) return MHA_OK;
    const int64_t room = mha__max64(mha__max64(FIRST_ROOM, used + more), g->room <= INT64_MAX / 2 ? 2 * g->room : 0);
    MHA__TRY(grow_one(g, used, room, &g->ids, err));
    MHA__TRY(grow_one(g, used, room, &g->types, err));
    g->room = room;
    return MHA_OK;
}

/* `types` may be NULL: 0. */
static mha_status append(mha__gather *g, const mha_model *model, int64_t text, const int32_t *ids, const int32_t *types,
                         int64_t length, mha_error *err)
{
    const int64_t used = g->starts[text], vocab = mha_model_describe(model)->vocab;
    const long long number = (long long)text + 1, count = (long long)g->count;
    if (length < 1) return mha__fail(err, MHA_ERR_ARG, "text %lld of %lld has no tokens", number, count);
    for (int64_t i = 0; i < length; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return mha__fail(err, MHA_ERR_ARG, "text %lld of %lld: token %lld is %d, which is not in 0..%lld", number,
                             count, (long long)i, (int)ids[i], (long long)vocab - 1);
    MHA__TRY(make_room(g, used, length, err));
    memcpy(g->ids + used, ids, (size_t)length * sizeof *ids);
    memset(g->types + used, 0, (size_t)length * sizeof *types);
    if (types) memcpy(g->types + used, types, (size_t)length * sizeof *types);
    g->starts[text + 1] = used + length;
    return MHA_OK;
}

static mha_status make_starts(mha__gather *g, mha_error *err)
{
    size_t bytes = SIZE_MAX;
    const bool fits = g->count < INT64_MAX && mha__bytes(&(int64_t){g->count + 1}, 1, sizeof *g->starts, &bytes);
    g->starts = fits ? mha__alloc(g->ctx, bytes) : NULL;
    if (!g->starts) return mha__no_memory(err, bytes, "where the texts begin");
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
        if (status == MHA_OK) status = append(g, model, i, e->ids, e->type_ids, e->count, err);
        mha_encoding_free(e);
    }
    return status;
}

mha_status mha__gather_ids(mha__gather *g, const mha_model *model, const int32_t *ids, const int64_t *starts,
                           int64_t max_tokens, mha_error *err)
{
    MHA__TRY(make_starts(g, err));
    if (starts[0] != 0) return mha__fail(err, MHA_ERR_ARG, "starts[0] = %lld: must be 0", (long long)starts[0]);
    for (int64_t i = 0; i < g->count; i++) {
        if (starts[i + 1] <= starts[i])
            return mha__fail(err, MHA_ERR_ARG, "starts[%lld] = %lld: must be more than %lld before it",
                             (long long)i + 1, (long long)starts[i + 1], (long long)starts[i]);
        const int64_t kept =
            mha__text_cut(model, &(mha__text){NULL, i, g->count}, starts[i + 1] - starts[i], max_tokens);
        MHA__TRY(append(g, model, i, ids + starts[i], NULL, kept, err));
    }
    return MHA_OK;
}

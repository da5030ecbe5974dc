/* grow_array.c - enlarges an array whose final length is not known in advance. */
#include "train/data/grow_array.h"

#include "base/ctx.h"
#include "base/size.h"
#include <string.h>

mha_status mha__grow_array(mha_ctx *ctx, void *array, int64_t used, int64_t more, size_t size, int64_t *room,
                           const char *what, mha_error *err)
{
    enum { FIRST_ROOM = 256 };
    void *old, *larger = NULL;
    size_t bytes = SIZE_MAX;
    if (more <= *room - used) return MHA_OK;
    const bool fits = more <= INT64_MAX / 2 - FIRST_ROOM - used;
    const int64_t wanted = fits ? 2 * (used + more) + FIRST_ROOM : 0;
    if (fits && mha__bytes(&wanted, 1, size, &bytes)) larger = mha__alloc(ctx, bytes);
    if (!larger) return mha__no_memory(err, bytes, what);
    memcpy(&old, array, sizeof old); /* *array is a pointer of any type */
    if (used) memcpy(larger, old, (size_t)used * size);
    mha__free(ctx, old);
    memcpy(array, &larger, sizeof larger);
    *room = wanted;
    return MHA_OK;
}

/* grow_array.h - an array that grows while its final length is unknown. */
#ifndef MHA_TRAIN_DATA_GROW_ARRAY_H
#define MHA_TRAIN_DATA_GROW_ARRAY_H

#include "base/error.h"
#include "mha/ctx.h"

/* Makes room for `more` elements of `size` bytes after the first `used` of *array, which has room for *room; *array and
 * *room change only if that is too small, at least doubling. Errors: MHA_ERR_MEMORY, naming `what`; *array is as it
 * was. Freed with mha__free. */
mha_status mha__grow_array(mha_ctx *ctx, void *array, int64_t used, int64_t more, size_t size, int64_t *room,
                           const char *what, mha_error *err);

#endif

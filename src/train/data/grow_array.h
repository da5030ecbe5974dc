/* grow_array.h - enlarges an array whose final length is not known in advance. */
#ifndef MHA_TRAIN_DATA_GROW_ARRAY_H
#define MHA_TRAIN_DATA_GROW_ARRAY_H

#include "base/error.h"
#include "mha/ctx.h"

/* Reserves space for `more` elements of `size` bytes after the first `used` elements of *array, whose capacity is
 * *room. If the capacity is too small, *array is replaced with an array of at least twice the size. Errors:
 * MHA_ERR_MEMORY, naming `what`; *array is then unchanged. Free *array with mha__free. */
mha_status mha__grow_array(mha_ctx *ctx, void *array, int64_t used, int64_t more, size_t size, int64_t *room,
                           const char *what, mha_error *err);

#endif

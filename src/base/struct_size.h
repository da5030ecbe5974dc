/* struct_size.h - reads a public struct from a caller that may use another version of the headers. */
#ifndef MHA_BASE_STRUCT_SIZE_H
#define MHA_BASE_STRUCT_SIZE_H

#include "mha/types.h"

/* Copies `given`, a public struct that begins with `size_t size`, to `own`, which has own_size bytes. Fields that a
 * smaller (older) struct lacks become zero. A larger (newer) struct is accepted if all bytes unknown to this library
 * are zero. The size field of `own` becomes own_size. A NULL `given` is equivalent to all zeros. Messages use `name` as
 * the name of the struct.
 *
 *     mha_ctx_options own;
 *     MHA__TRY(mha__options_read(&own, sizeof own, options, "mha_ctx_options", err));
 */
mha_status mha__options_read(void *own, size_t own_size, const void *given, const char *name, mha_error *err);

/* Same as mha__options_read for a required struct: fails if `given` is NULL. */
mha_status mha__options_need(void *own, size_t own_size, const void *given, const char *name, mha_error *err);

/* Writes the fields of `own` back to the caller's struct, up to its size. The size field of that struct is not
 * changed. */
void mha__options_write(void *given, const void *own, size_t own_size);

#endif

/* struct_size.h - reading a struct that the caller filled, perhaps with another version of the header. */
#ifndef MHA_BASE_STRUCT_SIZE_H
#define MHA_BASE_STRUCT_SIZE_H

#include "mha/types.h"

/* Copies `given`, a public struct that begins with `size_t size`, into `own`, of own_size bytes. A smaller (older)
 * struct leaves the fields it lacks zero; a larger (newer) one is accepted when what this library does not know is
 * zero. own's size field becomes own_size. `given` may be NULL: all zero. `name` is the struct's, for the sentence.
 *
 *     mha_ctx_options own;
 *     MHA__TRY(mha__options_read(&own, sizeof own, options, "mha_ctx_options", err));
 */
mha_status mha__options_read(void *own, size_t own_size, const void *given, const char *name, mha_error *err);

/* The same where nothing works without them: NULL is refused. */
mha_status mha__options_need(void *own, size_t own_size, const void *given, const char *name, mha_error *err);

/* Writes the fields of `own` back to the caller's struct that was read, as far as its size reaches; its size stays. */
void mha__options_write(void *given, const void *own, size_t own_size);

#endif

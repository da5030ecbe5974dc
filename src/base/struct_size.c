/* struct_size.c - checks the version of a public struct by its field `size`, and reads exactly as many bytes as this
 * field states. */
#include "base/struct_size.h"

#include "base/error.h"
#include <string.h>

mha_status mha__options_read(void *own, size_t own_size, const void *given, const char *name, mha_error *err)
{
    size_t size = own_size;
    memset(own, 0, own_size);
    if (given) {
        memcpy(&size, given, sizeof size);
        if (size < sizeof size || size % sizeof size != 0)
            return mha__fail(err, MHA_ERR_ARG, "%s.size must be sizeof(%s) = %zu (got %zu)", name, name, own_size,
                             size);
        const unsigned char *bytes = given;
        for (size_t i = own_size; i < size; i++)
            if (bytes[i] != 0)
                return mha__fail(err, MHA_ERR_UNSUPPORTED,
                                 "%s.size must be at most %zu unless all later bytes are 0 (got %zu with byte %zu set)",
                                 name, own_size, size, i);
        memcpy(own, given, size < own_size ? size : own_size);
    }
    memcpy(own, &own_size, sizeof own_size);
    return MHA_OK;
}

mha_status mha_struct_read(void *own, size_t own_size, const void *given, const char *name, mha_error *err)
{
    if (!own || !name) return mha__fail(err, MHA_ERR_ARG, "%s must not be NULL", own ? "name" : "own");
    if (own_size < sizeof own_size)
        return mha__fail(err, MHA_ERR_ARG, "own_size must be at least %zu (got %zu)", sizeof own_size, own_size);
    return mha__options_read(own, own_size, given, name, err);
}

mha_status mha__options_need(void *own, size_t own_size, const void *given, const char *name, mha_error *err)
{
    if (!given) return mha__fail(err, MHA_ERR_ARG, "%s must not be NULL", name);
    return mha__options_read(own, own_size, given, name, err);
}

void mha__options_write(void *given, const void *own, size_t own_size)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    memcpy((char *)given + sizeof size, (const char *)own + sizeof size,
           (size < own_size ? size : own_size) - sizeof size);
}

/* struct_size.c - the version check of every public struct: what its `size` promises is what is read. */
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
            return mha__fail(err, MHA_ERR_ARG, "%s.size is %zu, want sizeof(%s), %zu", name, size, name, own_size);
        const unsigned char *bytes = given;
        for (size_t i = own_size; i < size; i++)
            if (bytes[i] != 0)
                return mha__fail(
                    err, MHA_ERR_UNSUPPORTED,
                    "%s.size is %zu and a field behind byte %zu is set, but this library (%zu bytes) does not know it",
                    name, size, i, own_size);
        memcpy(own, given, size < own_size ? size : own_size);
    }
    memcpy(own, &own_size, sizeof own_size);
    return MHA_OK;
}

mha_status mha__options_need(void *own, size_t own_size, const void *given, const char *name, mha_error *err)
{
    if (!given) return mha__fail(err, MHA_ERR_ARG, "%s: NULL is given", name);
    return mha__options_read(own, own_size, given, name, err);
}

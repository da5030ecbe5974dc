/* stored_types.c - the table of the types of the safetensors format. */
#include "io/safetensors/stored_types.h"

#include <string.h>

static const mha__stored_type types[] = {
    {"BOOL", MHA_BOOL, 8},
    {"U8", MHA_U8, 8},
    {"I8", MHA_I8, 8},
    {"U16", MHA_U16, 16},
    {"I16", MHA_I16, 16},
    {"F16", MHA_F16, 16},
    {"BF16", MHA_BF16, 16},
    {"U32", MHA_U32, 32},
    {"I32", MHA_I32, 32},
    {"F32", MHA_F32, 32},
    {"U64", MHA_U64, 64},
    {"I64", MHA_I64, 64},
    {"F64", MHA_F64, 64},
    {"F4", MHA_DTYPE_OTHER, 4},
    {"F6_E2M3", MHA_DTYPE_OTHER, 6},
    {"F6_E3M2", MHA_DTYPE_OTHER, 6},
    {"F8_E4M3", MHA_DTYPE_OTHER, 8},
    {"F8_E5M2", MHA_DTYPE_OTHER, 8},
    {"F8_E8M0", MHA_DTYPE_OTHER, 8},
    {"F8_E4M3FNUZ", MHA_DTYPE_OTHER, 8},
    {"F8_E5M2FNUZ", MHA_DTYPE_OTHER, 8},
    {"C64", MHA_DTYPE_OTHER, 64},
};

enum { TYPES = sizeof types / sizeof types[0] };

const mha__stored_type *mha__stored_named(const char *name, size_t n)
{
    for (int i = 0; i < TYPES; i++)
        if (n == strlen(types[i].name) && memcmp(name, types[i].name, n) == 0) return &types[i];
    return NULL;
}

const mha__stored_type *mha__stored_as(mha_dtype dtype)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype && dtype != MHA_DTYPE_OTHER) return &types[i];
    return NULL;
}

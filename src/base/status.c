/* status.c - names of statuses and data types, and the version. These functions cannot fail. */
#include "base/error.h"
#include "mha/mha.h"

#define TEXT_OF(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

static const struct {
    const char *name;
    size_t size; /* bytes per element; 0 if elements are not stored individually */
} dtypes[] = {
    [MHA_DTYPE_DEFAULT] = {"default", 0},
    [MHA_F32] = {"f32", 4},
    [MHA_BF16] = {"bf16", 2},
    [MHA_F16] = {"f16", 2},
    [MHA_F64] = {"f64", 8},
    [MHA_Q8_0] = {"q8_0", 0},
    [MHA_BOOL] = {"bool", 1},
    [MHA_U8] = {"u8", 1},
    [MHA_I8] = {"i8", 1},
    [MHA_U16] = {"u16", 2},
    [MHA_I16] = {"i16", 2},
    [MHA_U32] = {"u32", 4},
    [MHA_I32] = {"i32", 4},
    [MHA_U64] = {"u64", 8},
    [MHA_I64] = {"i64", 8},
    [MHA_DTYPE_OTHER] = {"other", 0},
    [MHA_Q4_0] = {"q4_0", 0},
    [MHA_F8_E4M3] = {"f8_e4m3", 1},
};

static int known(mha_dtype dtype)
{
    return (size_t)dtype < sizeof dtypes / sizeof dtypes[0]; /* a negative value becomes a very large size_t */
}

const char *mha__dtype_name(mha_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].name : NULL;
}

const char *mha_dtype_name(mha_dtype dtype)
{
    const char *name = mha__dtype_name(dtype);
    return name ? name : "unknown";
}

size_t mha_dtype_size(mha_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].size : 0;
}

const char *mha_status_text(mha_status status)
{
    switch (status) {
#define TEXT(name, value, text) \
    case name:                  \
        return text;
        MHA_STATUS_MAP(TEXT)
#undef TEXT
    }
    return "unknown status";
}

const char *mha_version(void)
{
    return VERSION_TEXT(MHA_VERSION_MAJOR, MHA_VERSION_MINOR, MHA_VERSION_PATCH);
}

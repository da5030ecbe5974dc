/* block_types.c - the types of tensors in GGUF files. A block holds `elements` consecutive elements of a row. */
#include "io/block_types.h"

#include "io/quantized_blocks.h"
#include <string.h>

enum { SUPER = MHA__SUPER_BLOCK };

static const mha__block_type types[] = {
    {"F32", 0, MHA_F32, 1, 4, NULL},
    {"F16", 1, MHA_F16, 1, 2, NULL},
    {"Q4_0", 2, MHA_DTYPE_OTHER, 32, 18, mha__q4_0_to_f32},
    {"Q4_1", 3, MHA_DTYPE_OTHER, 32, 20, mha__q4_1_to_f32},
    {"Q5_0", 6, MHA_DTYPE_OTHER, 32, 22, mha__q5_0_to_f32},
    {"Q5_1", 7, MHA_DTYPE_OTHER, 32, 24, mha__q5_1_to_f32},
    {"Q8_0", 8, MHA_Q8_0, 32, 34, mha__q8_0_to_f32},
    {"Q8_1", 9, MHA_DTYPE_OTHER, 32, 40, NULL},
    {"Q2_K", 10, MHA_DTYPE_OTHER, SUPER, 84, mha__q2_k_to_f32},
    {"Q3_K", 11, MHA_DTYPE_OTHER, SUPER, 110, mha__q3_k_to_f32},
    {"Q4_K", 12, MHA_DTYPE_OTHER, SUPER, 144, mha__q4_k_to_f32},
    {"Q5_K", 13, MHA_DTYPE_OTHER, SUPER, 176, mha__q5_k_to_f32},
    {"Q6_K", 14, MHA_DTYPE_OTHER, SUPER, 210, mha__q6_k_to_f32},
    {"Q8_K", 15, MHA_DTYPE_OTHER, SUPER, 292, NULL},
    {"IQ2_XXS", 16, MHA_DTYPE_OTHER, SUPER, 66, NULL},
    {"IQ2_XS", 17, MHA_DTYPE_OTHER, SUPER, 74, NULL},
    {"IQ3_XXS", 18, MHA_DTYPE_OTHER, SUPER, 98, NULL},
    {"IQ1_S", 19, MHA_DTYPE_OTHER, SUPER, 50, NULL},
    {"IQ4_NL", 20, MHA_DTYPE_OTHER, 32, 18, mha__iq4_nl_to_f32},
    {"IQ3_S", 21, MHA_DTYPE_OTHER, SUPER, 110, NULL},
    {"IQ2_S", 22, MHA_DTYPE_OTHER, SUPER, 82, NULL},
    {"IQ4_XS", 23, MHA_DTYPE_OTHER, SUPER, 136, mha__iq4_xs_to_f32},
    {"I8", 24, MHA_I8, 1, 1, NULL},
    {"I16", 25, MHA_I16, 1, 2, NULL},
    {"I32", 26, MHA_I32, 1, 4, NULL},
    {"I64", 27, MHA_I64, 1, 8, NULL},
    {"F64", 28, MHA_F64, 1, 8, NULL},
    {"IQ1_M", 29, MHA_DTYPE_OTHER, SUPER, 56, NULL},
    {"BF16", 30, MHA_BF16, 1, 2, NULL},
    {"TQ1_0", 34, MHA_DTYPE_OTHER, SUPER, 54, NULL},
    {"TQ2_0", 35, MHA_DTYPE_OTHER, SUPER, 66, NULL},
    {"MXFP4", 39, MHA_DTYPE_OTHER, 32, 17, mha__mxfp4_to_f32},
    {"NVFP4", 40, MHA_DTYPE_OTHER, 64, 36, NULL},
    {"Q1_0", 41, MHA_DTYPE_OTHER, 128, 18, NULL},
};

enum { TYPES = sizeof types / sizeof *types };

const mha__block_type *mha__block_type_numbered(uint32_t number)
{
    for (int n = 0; n < TYPES; n++)
        if (types[n].number == number) return &types[n];
    return NULL;
}

const mha__block_type *mha__block_type_named(const char *name)
{
    for (int n = 0; name && n < TYPES; n++)
        if (strcmp(types[n].name, name) == 0) return &types[n];
    return NULL;
}

const mha__block_type *mha__block_type_of(const mha_tensor *tensor)
{
    if (tensor->dtype != MHA_DTYPE_OTHER && tensor->dtype != MHA_Q8_0) return NULL;
    const mha__block_type *type = mha__block_type_named(tensor->dtype_name);
    return type && type->to_f32 ? type : NULL;
}

void mha__blocks_to_f32(const mha__block_type *type, const void *data, int64_t count, float *out)
{
    const unsigned char *block = data;
    for (int64_t i = 0; i < count; i += type->elements, block += type->bytes)
        type->to_f32(block, out + i);
}

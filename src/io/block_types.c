/* block_types.c - the types of tensors in GGUF files, and their conversion to f32.
 *
 * The conversions are those of ggml's reference, in float32 and in the same order of operations, so that every element
 * is bitwise identical. A block holds `elements` consecutive elements of a row. */
#include "io/block_types.h"
#include "math/half.h"
#include "math/q8_0.h"
#include <string.h>

enum { SUPER = 256 }; /* elements of a block of the K types */

static float half_at(const unsigned char *p)
{
    return mha__f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static void q8_0_to_f32(const unsigned char *block, float *out)
{
    const float scale = half_at(block);
    for (int i = 0; i < MHA__Q8_BLOCK; i++)
        out[i] = (float)(int8_t)block[2 + i] * scale;
}

/* f16 scale, then 16 bytes: element i in the low half of byte i, element 16 + i in the high half. */
static void q4_0_to_f32(const unsigned char *block, float *out)
{
    const float scale = half_at(block);
    for (int i = 0; i < 16; i++) {
        const int byte = block[2 + i];
        out[i] = scale * (float)((byte & 15) - 8);
        out[16 + i] = scale * (float)((byte >> 4) - 8);
    }
}

/* Unpacks the 6-bit scale and minimum of group `g` of 8 from 12 bytes. */
static void group_scale(const unsigned char *packed, int g, int *scale, int *minimum)
{
    if (g < 4) {
        *scale = packed[g] & 63;
        *minimum = packed[4 + g] & 63;
    } else {
        *scale = (packed[4 + g] & 15) | (packed[g - 4] >> 6) << 4;
        *minimum = packed[4 + g] >> 4 | (packed[g] >> 6) << 4;
    }
}

/* f16 scale, f16 scale of the minima, 12 bytes of scales and minima, 128 bytes of elements: each 32 bytes hold a group
 * in their low halves and the next group in their high halves. */
static void q4_k_to_f32(const unsigned char *block, float *out)
{
    const float d = half_at(block), d_min = half_at(block + 2);
    for (int g = 0; g < 8; g++) {
        int scale, minimum;
        group_scale(block + 4, g, &scale, &minimum);
        const float group = d * (float)scale, least = d_min * (float)minimum;
        const unsigned char *bytes = block + 16 + g / 2 * 32;
        for (int i = 0; i < 32; i++)
            out[32 * g + i] = group * (float)(bytes[i] >> 4 * (g % 2) & 15) - least;
    }
}

/* 128 bytes of low 4 bits, 64 bytes of high 2 bits, 16 int8 scales of 16 elements each, f16 scale. */
static void q6_k_to_f32(const unsigned char *block, float *out)
{
    const unsigned char *low = block, *high = block + 128, *scales = block + 192;
    const float d = half_at(block + 208);
    for (int i = 0; i < SUPER; i++) {
        const int half = i / 128, at = i % 128;
        const int bits =
            (low[64 * half + at % 64] >> 4 * (at / 64) & 15) | (high[32 * half + at % 32] >> 2 * (at / 32) & 3) << 4;
        out[i] = d * (float)(int8_t)scales[i / 16] * (float)(bits - 32);
    }
}

static const mha__block_type types[] = {
    {"F32", 0, MHA_F32, 1, 4, NULL},
    {"F16", 1, MHA_F16, 1, 2, NULL},
    {"Q4_0", 2, MHA_DTYPE_OTHER, 32, 18, q4_0_to_f32},
    {"Q4_1", 3, MHA_DTYPE_OTHER, 32, 20, NULL},
    {"Q5_0", 6, MHA_DTYPE_OTHER, 32, 22, NULL},
    {"Q5_1", 7, MHA_DTYPE_OTHER, 32, 24, NULL},
    {"Q8_0", 8, MHA_Q8_0, 32, 34, q8_0_to_f32},
    {"Q8_1", 9, MHA_DTYPE_OTHER, 32, 40, NULL},
    {"Q2_K", 10, MHA_DTYPE_OTHER, SUPER, 84, NULL},
    {"Q3_K", 11, MHA_DTYPE_OTHER, SUPER, 110, NULL},
    {"Q4_K", 12, MHA_DTYPE_OTHER, SUPER, 144, q4_k_to_f32},
    {"Q5_K", 13, MHA_DTYPE_OTHER, SUPER, 176, NULL},
    {"Q6_K", 14, MHA_DTYPE_OTHER, SUPER, 210, q6_k_to_f32},
    {"Q8_K", 15, MHA_DTYPE_OTHER, SUPER, 292, NULL},
    {"IQ2_XXS", 16, MHA_DTYPE_OTHER, SUPER, 66, NULL},
    {"IQ2_XS", 17, MHA_DTYPE_OTHER, SUPER, 74, NULL},
    {"IQ3_XXS", 18, MHA_DTYPE_OTHER, SUPER, 98, NULL},
    {"IQ1_S", 19, MHA_DTYPE_OTHER, SUPER, 50, NULL},
    {"IQ4_NL", 20, MHA_DTYPE_OTHER, 32, 18, NULL},
    {"IQ3_S", 21, MHA_DTYPE_OTHER, SUPER, 110, NULL},
    {"IQ2_S", 22, MHA_DTYPE_OTHER, SUPER, 82, NULL},
    {"IQ4_XS", 23, MHA_DTYPE_OTHER, SUPER, 136, NULL},
    {"I8", 24, MHA_I8, 1, 1, NULL},
    {"I16", 25, MHA_I16, 1, 2, NULL},
    {"I32", 26, MHA_I32, 1, 4, NULL},
    {"I64", 27, MHA_I64, 1, 8, NULL},
    {"F64", 28, MHA_F64, 1, 8, NULL},
    {"IQ1_M", 29, MHA_DTYPE_OTHER, SUPER, 56, NULL},
    {"BF16", 30, MHA_BF16, 1, 2, NULL},
    {"TQ1_0", 34, MHA_DTYPE_OTHER, SUPER, 54, NULL},
    {"TQ2_0", 35, MHA_DTYPE_OTHER, SUPER, 66, NULL},
    {"MXFP4", 39, MHA_DTYPE_OTHER, 32, 17, NULL},
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

mha_tensor mha__tensor_part(const mha_tensor *tensor, int64_t first, int64_t count)
{
    const mha__block_type *type = mha__block_type_of(tensor);
    const int64_t elements = type ? type->elements : 1;
    const size_t bytes = type ? type->bytes : mha_dtype_size(tensor->dtype);
    mha_tensor part = *tensor;
    part.data = (const char *)tensor->data + (size_t)(first / elements) * bytes;
    part.elements = count;
    part.bytes = (size_t)(count / elements) * bytes;
    return part;
}

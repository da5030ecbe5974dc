/* kernel_select.c - selects the kernel table for an ISA cap. */
#include "kernel/kernel.h"

#include "base/ctx.h"

extern const mha__kernels mha__kernels_f32_scalar, mha__kernels_f64_scalar;
#if defined(__x86_64__)
extern const mha__kernels mha__kernels_f32_avx2, mha__kernels_f32_avx512, mha__kernels_f32_avx512vnni,
    mha__kernels_f32_avx512bf16, mha__kernels_f32_amx, mha__kernels_f32_amx_bf16;
#elif defined(__aarch64__)
extern const mha__kernels mha__kernels_f32_neon;
#elif defined(__wasm_simd128__)
extern const mha__kernels mha__kernels_f32_wasm128;
#endif

/* The f32 tables, sorted from the newest ISA to the oldest. */
static const struct {
    mha__isa isa;
    const mha__kernels *table;
    bool (*required)(void); /* a feature that the ISA does not include; NULL if none is required */
} tables[] = {
#if defined(__x86_64__)
    {MHA__AMX, &mha__kernels_f32_amx, mha__cpu_has_amx_int8},
    {MHA__AMX, &mha__kernels_f32_amx_bf16, NULL},
    {MHA__AVX512BF16, &mha__kernels_f32_avx512bf16, NULL},
    {MHA__AVX512VNNI, &mha__kernels_f32_avx512vnni, NULL},
    {MHA__AVX512, &mha__kernels_f32_avx512, NULL},
    {MHA__AVX2, &mha__kernels_f32_avx2, NULL},
#elif defined(__aarch64__)
    {MHA__NEON, &mha__kernels_f32_neon, NULL},
#elif defined(__wasm_simd128__)
    {MHA__WASM128, &mha__kernels_f32_wasm128, NULL},
#endif
    {MHA__SCALAR, &mha__kernels_f32_scalar, NULL},
};

static bool usable(size_t i, mha__isa cap)
{
    return tables[i].isa <= cap && mha__cpu_has(tables[i].isa) && (!tables[i].required || tables[i].required());
}

const mha__kernels *mha__kernels_f32(mha__isa cap)
{
    const size_t last = sizeof tables / sizeof tables[0] - 1;
    size_t i = 0;
    while (i < last && !usable(i, cap))
        i++;
    return tables[i].table;
}

const mha__kernels *mha__kernels_f64(void)
{
#if defined(__wasi__) /* the page of mha live computes in f32 only */
    return NULL;
#else
    return &mha__kernels_f64_scalar;
#endif
}

const mha__kernels *mha__kernels_of(mha_ctx *ctx, mha_dtype dtype)
{
    return dtype == MHA_F64 ? mha__kernels_f64() : mha__kernels_f32(mha__ctx_isa(ctx));
}

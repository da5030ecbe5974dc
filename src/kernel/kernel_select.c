/* kernel_select.c - selects the kernel table for an ISA cap. */
#include "kernel/kernel.h"

#include "base/ctx.h"

extern const mha__kernels mha__kernels_f32_scalar, mha__kernels_f64_scalar;
#if defined(__x86_64__)
extern const mha__kernels mha__kernels_f32_avx2, mha__kernels_f32_avx512, mha__kernels_f32_avx512vnni,
    mha__kernels_f32_avx512bf16, mha__kernels_f32_amx;
#elif defined(__aarch64__)
extern const mha__kernels mha__kernels_f32_neon;
#elif defined(__wasm_simd128__)
extern const mha__kernels mha__kernels_f32_wasm128;
#endif

/* The f32 tables, sorted from the newest ISA to the oldest. */
static const struct {
    mha__isa isa;
    const mha__kernels *table;
} tables[] = {
#if defined(__x86_64__)
    {MHA__AMX, &mha__kernels_f32_amx},
    {MHA__AVX512BF16, &mha__kernels_f32_avx512bf16},
    {MHA__AVX512VNNI, &mha__kernels_f32_avx512vnni},
    {MHA__AVX512, &mha__kernels_f32_avx512},
    {MHA__AVX2, &mha__kernels_f32_avx2},
#elif defined(__aarch64__)
    {MHA__NEON, &mha__kernels_f32_neon},
#elif defined(__wasm_simd128__)
    {MHA__WASM128, &mha__kernels_f32_wasm128},
#endif
    {MHA__SCALAR, &mha__kernels_f32_scalar},
};

const mha__kernels *mha__kernels_f32(mha__isa cap)
{
    const size_t last = sizeof tables / sizeof tables[0] - 1;
    size_t i = 0;
    while (i < last && (tables[i].isa > cap || !mha__cpu_has(tables[i].isa)))
        i++;
    return tables[i].table;
}

const mha__kernels *mha__kernels_f64(mha__isa cap)
{
    (void)cap;
    return &mha__kernels_f64_scalar;
}

const mha__kernels *mha__kernels_of(mha_ctx *ctx, mha_dtype dtype)
{
    return dtype == MHA_F64 ? mha__kernels_f64(mha__ctx_isa(ctx)) : mha__kernels_f32(mha__ctx_isa(ctx));
}

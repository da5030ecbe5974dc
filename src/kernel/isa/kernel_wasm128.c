/* kernel_wasm128.c - the f32 kernels, compiled for the 128-bit vectors of WebAssembly (-msimd128). Empty on other
 * architectures. */
#if defined(__wasm_simd128__)
#define MHA_SUFFIX f32_wasm128
#define MHA_ISA_NAME "wasm128"
#include "kernel/common.inc"
#include <wasm_simd128.h>

#include "kernel/simd/simd_wasm128.h"

#include "kernel/kernels.inc"
#else
typedef int mha__no_wasm128; /* a translation unit must not be empty */
#endif

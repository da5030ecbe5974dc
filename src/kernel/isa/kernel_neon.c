/* kernel_neon.c - the f32 kernels, compiled for NEON, which every 64-bit ARM CPU has. Empty on other architectures. */
#if defined(__aarch64__)
#define MHA_SUFFIX f32_neon
#define MHA_ISA_NAME "neon"
#include "kernel/common.inc"
#include <arm_neon.h>

#include "kernel/simd/simd_neon.h"

#include "kernel/kernels.inc"
#else
typedef int mha__no_neon; /* a translation unit must not be empty */
#endif

/* kernel_scalar.c - the f32 kernels in plain C, for any CPU. */
#define MHA_SUFFIX f32_scalar
#define MHA_ISA_NAME "scalar"
#include "kernel/common.inc"

#include "kernel/simd/simd_scalar.h"

#include "kernel/kernels.inc"

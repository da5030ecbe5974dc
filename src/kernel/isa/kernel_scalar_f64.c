/* kernel_scalar_f64.c - the f64 kernels in plain C, for any CPU; the reference for the comparisons of `mha verify`. */
#define MHA_DOUBLE
#define MHA_SUFFIX f64_scalar
#define MHA_ISA_NAME "scalar"
#include "kernel/common.inc"

#include "kernel/simd/simd_scalar.h"

#include "kernel/kernels.inc"

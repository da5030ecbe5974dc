/* machine_peak.h - measures the peak performance of this machine, to which the benchmarks' fractions of peak refer.
 *
 * Attention over many queries is bound by multiply-adds, over one query by reading K and V. Both limits are measured
 * with the kernels' vectors, and with the threads and ISA of the context, so that a fraction shows what the operator
 * loses, not what the machine lacks. The figures are the best of many short runs. Other work on the machine lowers
 * them, so measure before and after a benchmark and keep the larger figure. */
#ifndef MHA_MACHINE_PEAK_H
#define MHA_MACHINE_PEAK_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Measures f32 multiply-adds in registers, two operations each: operations per second of all threads. Takes about 0.1
 * s. */
MHA_API mha_status mha_limit_fma(mha_ctx *ctx, double *flops_per_second, mha_error *err);

/* Reads `bytes` of the caller's memory, aligned to 4, repeatedly and sums it: bytes per second of all threads. The
 * figure applies to this size and these pages: pass the very K and V that a call reads. Parts of 512 bytes at the end
 * may stay unread; below 1 MiB the time to wake the threads is included. Takes about 0.1 s, or 5 passes. Errors:
 * MHA_ERR_ARG if memory is NULL or bytes < 4096. */
MHA_API mha_status mha_limit_read(mha_ctx *ctx, const void *memory, int64_t bytes, double *bytes_per_second,
                                  mha_error *err);

#ifdef __cplusplus
}
#endif
#endif

/* machine_peak.h - measures the peak performance of this machine, the basis for the fractions of peak in the
 * benchmarks.
 *
 * Attention over many queries is bound by multiply-adds; attention over one query is bound by reading K and V. Both
 * limits are measured with the vector width of the kernels and with the threads and ISA of the context, so a fraction
 * of peak shows the efficiency of the operator, not a limit of the machine. Each figure is the best of many short runs.
 * Other load on the machine lowers the figures, so measure before and after a benchmark and keep the larger figure. */
#ifndef MHA_MACHINE_PEAK_H
#define MHA_MACHINE_PEAK_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Measures f32 multiply-adds in registers, in operations per second of all threads; a multiply-add is two operations.
 * Takes about 0.1 s. Errors: MHA_ERR_ARG if flops_per_second is NULL. */
MHA_API mha_status mha_machine_peak_fma(mha_ctx *ctx, double *flops_per_second, mha_error *err);

/* Measures the read bandwidth, in bytes per second of all threads, by repeatedly summing `bytes` of the caller's
 * memory. The memory must be 4-byte-aligned. The figure applies to this size and these pages, so pass the K and V that
 * the call reads. The last chunks of 512 bytes may not be read; below 1 MiB, the figure includes the time to wake the
 * threads. Takes about 0.1 s, or 5 passes. Errors: MHA_ERR_ARG if memory is NULL or bytes < 4096. */
MHA_API mha_status mha_machine_peak_read(mha_ctx *ctx, const void *memory, int64_t bytes, double *bytes_per_second,
                                         mha_error *err);

#ifdef __cplusplus
}
#endif
#endif

/* machine_peak.h - what this machine can do at best, measured: the 100 % that a share of the limit refers to.
 *
 * Speed without its limit says little: attention over many queries is bound by multiply-adds, over one query by reading
 * K and V. Both are measured with the kernels' own vectors and the context's threads and ISA, so a share tells what the
 * operator loses, not what the machine lacks. The figures are the best of many short runs, other work on
 * the machine lowers them, so measure before and after what is compared, and keep the larger.
 */
#ifndef MHA_MACHINE_PEAK_H
#define MHA_MACHINE_PEAK_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* f32 multiply-adds in registers, two operations each: operations per second of all threads. Takes about 0.1 s. */
MHA_API mha_status mha_limit_fma(mha_ctx *ctx, double *flops_per_second, mha_error *err);

/* Reads `bytes` of the caller's memory, which is aligned to 4, again and again and adds up what it finds: bytes per
 * second of all threads. The figure belongs to that footprint and those pages: pass the very K and V that a call reads.
 * Parts of 512 bytes at the end may stay unread; below 1 MiB the threads' waking up is measured too. Takes about 0.1 s,
 * or 5 passes. Errors: MHA_ERR_ARG if memory is NULL or bytes < 4096. */
MHA_API mha_status mha_limit_read(mha_ctx *ctx, const void *memory, int64_t bytes, double *bytes_per_second,
                                  mha_error *err);

#ifdef __cplusplus
}
#endif
#endif

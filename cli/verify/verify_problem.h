/* verify_problem.h - one fixed problem of `mha verify`, with its results in double, in f32, and in plain f32 loops. */
#ifndef CLI_VERIFY_VERIFY_PROBLEM_H
#define CLI_VERIFY_VERIFY_PROBLEM_H

#include "verify/verify.h"

/* One problem with its data in both types and the results of all ways to compute it. Results are [rows, ...]. */
typedef struct verify_problem {
    mha_attn_desc desc;
    int64_t Hkv, Dv, rows; /* rows = B H Lq */
    float *q, *k, *v, *bias, *out, *lse;
    double *q64, *k64, *v64, *bias64, *out64, *lse64, *probs64;
    double *plain_out, *plain_lse; /* results of float32 loops, stored wide */
    uint8_t *keep;
    int64_t *kv_lens;
    verify_memory memory;
    verify_entry entry; /* for messages about memory */
} verify_problem;

/* Random data, the same on every machine; false with error->status set when memory is short. Free with
 * verify_release(&p->memory). */
bool verify_problem_make(verify_problem *p, const mha_attn_desc *desc, const char *name, mha_error *error);
/* The operator in double into out64, lse64 and probs64; in f32 into out and lse. */
mha_status verify_run_wide(mha_ctx *scalar, const verify_problem *p, mha_error *error);
mha_status verify_run_narrow(mha_ctx *ctx, const verify_problem *p, mha_error *error);
/* Plain loops in f32 into plain_out and plain_lse; after verify_run_wide. */
mha_status verify_run_plain(verify_problem *p);

#endif

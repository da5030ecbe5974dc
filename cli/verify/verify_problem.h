/* verify_problem.h - creates a fixed problem of `mha verify` and computes it in double precision, in f32, and with
 * naive f32 loops. */
#ifndef CLI_VERIFY_VERIFY_PROBLEM_H
#define CLI_VERIFY_VERIFY_PROBLEM_H

#include "verify/verify.h"

/* One problem: data in both types, and the results of each computation. Results are [rows, ...]. */
typedef struct verify_problem {
    mha_attn_desc desc;
    int64_t Hkv, Dv, rows; /* key/value heads, value width, and number of rows, B * H * Lq */
    float *q, *k, *v, *bias, *out, *lse;
    double *q64, *k64, *v64, *bias64, *out64, *lse64, *probs64;
    double *plain_out, *plain_lse; /* results of naive f32 loops, stored as double */
    uint8_t *keep;
    int64_t *kv_lens;
    verify_memory memory;
    verify_entry entry; /* names the problem in out-of-memory errors */
} verify_problem;

/* Creates a problem with random data, identical on every machine. Returns false and sets error->status if memory is
 * exhausted. The caller must call verify_release(&p->memory). */
bool verify_problem_make(verify_problem *p, const mha_attn_desc *desc, const char *name, mha_error *error);
/* Runs the operator in double (out64, lse64, probs64) and in f32 (out, lse). */
mha_status verify_run_wide(mha_ctx *scalar, const verify_problem *p, mha_error *error);
mha_status verify_run_narrow(mha_ctx *ctx, const verify_problem *p, mha_error *error);
/* Computes plain_out and plain_lse with naive f32 loops. Requires the results of verify_run_wide. */
mha_status verify_run_plain(verify_problem *p);

#endif

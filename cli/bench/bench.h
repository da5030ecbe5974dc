/* bench.h - what the parts of `mha bench` share: a row, its data, its measurement, and how they are printed.
 *
 * Only the public interface is used, as a caller would: plan and workspace once, then the same call again and again on
 * memory that has been touched.
 */
#ifndef CLI_BENCH_BENCH_H
#define CLI_BENCH_BENCH_H

#include "command.h"

typedef struct bench_row {
    const char *name;
    int64_t B, H, Hkv, Lq, Lk, D;
    int causal;
    int training; /* forward and backward */
} bench_row;

/* One row in one type: either `refused` says why there are no numbers, or all of them are there. */
typedef struct bench_result {
    const bench_row *row;
    mha_dtype dtype;
    char refused[1024];
    char isa[32]; /* of the kernel that ran */
    int64_t calls;
    double best, median; /* seconds of one call */
    double flops, bytes; /* of one call */
    double fma, read;    /* limits: operations and bytes per second, the latter of this K and V */
    bool reads;          /* the limit is reading: one query */
    bool pairs;          /* bf16 was multiplied in pairs: no limit of that is measured, and fma is none of it */
} bench_result;

/* All rows, ended by one without a name. */
extern const bench_row bench_rows[];

/* The limit's name, its rate per second, and the share of it, 0 to 1 and a little more where the limit was disturbed;
 * both are NAN where the limit is not measured. */
const char *bench_limit(const bench_result *result);
double bench_limit_rate(const bench_result *result);
double bench_share(const bench_result *result);

/* Measures for about `seconds`; a refusal is a result. Returns an exit code. */
int bench_attention(cli_session *session, const bench_row *row, mha_dtype dtype, double seconds, bench_result *result);

/* Writes all results as --json, --csv or a table, and returns an exit code. */
int bench_print(cli_session *session, const bench_result *results, int count);

#endif

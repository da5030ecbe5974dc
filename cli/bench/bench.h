/* bench.h - shared by the files of `mha bench`: a row, its data, its measurement and its output.
 *
 * Only the public interface is used, as in a user's program: plan and workspace are created once, then the same call
 * repeats on memory that has been touched. */
#ifndef CLI_BENCH_BENCH_H
#define CLI_BENCH_BENCH_H

#include "command.h"

typedef struct bench_row {
    const char *name;
    int64_t B, H, Hkv, Lq, Lk, D;
    int causal;
    int training; /* forward and backward pass */
} bench_row;

/* The measurement of one row in one dtype. `refused` is NULL, or the reason why the row was not measured. */
typedef struct bench_result {
    const bench_row *row;
    mha_dtype dtype;
    char refused[1024];
    char isa[32]; /* ISA of the kernel that ran */
    int64_t calls;
    double best, median; /* seconds per call */
    double flops, bytes; /* operations per call, bytes read per call */
    double fma, read;    /* measured limits: operations per second, and bytes per second for reading this K and V */
    bool reads;          /* one query per head: the limit is memory bandwidth */
    bool pairs; /* bf16 pairs were multiplied: the limit of that rate is not measured, and fma does not apply */
} bench_result;

/* All rows, terminated by a row without a name. */
extern const bench_row bench_rows[];

/* Return the name of the limit, its rate per second, and the fraction reached: 0 to 1, or slightly more if the
 * measurement of the limit was disturbed. Rate and fraction are NAN if the limit is not measured. */
const char *bench_limit(const bench_result *result);
double bench_limit_rate(const bench_result *result);
double bench_share(const bench_result *result);

/* Measures for about `seconds`. An unsupported row is a valid result. Returns an exit code. */
int bench_attention(cli_session *session, const bench_row *row, mha_dtype dtype, double seconds, bench_result *result);

/* Writes all results as --json, --csv or a table. Returns an exit code. */
int bench_print(cli_session *session, const bench_result *results, int count);

#endif

/* bench.h - measures and prints the rows of `mha bench`.
 *
 * The benchmark uses only the public interface, like a user's program: it creates plan and workspace once, then repeats
 * the same call on memory that has already been accessed. */
#ifndef CLI_BENCH_BENCH_H
#define CLI_BENCH_BENCH_H

#include "command.h"

typedef struct bench_row {
    const char *name;
    int64_t B, H, Hkv, Lq, Lk, D;
    int causal;
    int training; /* forward and backward pass */
} bench_row;

/* The measurement of one row in one dtype. `refused` is the reason why the row was not measured, or "". */
typedef struct bench_result {
    const bench_row *row;
    mha_dtype dtype;
    char refused[1024];
    char isa[32]; /* ISA of the kernel that ran */
    int64_t calls;
    double best, median; /* seconds per call */
    double flops, bytes; /* operations per call, bytes read per call */
    double fma, read;    /* measured limits: operations per second, and bytes per second for reading this K and V */
    bool reads;          /* true for one query per head: the limit is then memory bandwidth */
    bool pairs; /* true if bf16 values were multiplied in pairs: fma does not apply, and no other limit is measured */
} bench_result;

/* All rows, terminated by a row without a name. */
extern const bench_row bench_rows[];

/* Return the name of the limit, its rate per second, and the fraction of the limit that was reached: 0 to 1, or
 * slightly more if other programs disturbed the measurement of the limit. Rate and fraction are NAN if the limit is not
 * measured. */
const char *bench_limit(const bench_result *result);
double bench_limit_rate(const bench_result *result);
double bench_share(const bench_result *result);

/* Measures a row for about `seconds`. Returns an exit code; an unsupported row is not an error and sets `refused`. */
int bench_attention(cli_session *session, const bench_row *row, mha_dtype dtype, double seconds, bench_result *result);

/* Writes all results as --json, --csv or a table. Returns an exit code. */
int bench_print(cli_session *session, const bench_result *results, int count);

#endif

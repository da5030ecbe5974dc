/* bench_attention.c - measures one row: creates data and plan, times calls, and measures the machine's limits before
 * and after the calls. */
#include "bench/bench.h"
#include "output.h"
#include "session.h"
#include "shapes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

const bench_row bench_rows[] = {
#define BENCH__X(name, B, H, Hkv, Lq, Lk, D, causal) {name, B, H, Hkv, Lq, Lk, D, causal, 0},
    BENCH_ATTENTION_ROWS(BENCH__X)
#undef BENCH__X
#define BENCH__X(name, B, H, Hkv, Lq, Lk, D, causal) {name, B, H, Hkv, Lq, Lk, D, causal, 1},
        BENCH_TRAINING_ROWS(BENCH__X)
#undef BENCH__X
            {0}};

const char *bench_limit(const bench_result *r)
{
    return r->reads ? "read" : r->pairs ? "pairs" : "fma";
}

double bench_limit_rate(const bench_result *r)
{
    return r->reads ? r->read : r->pairs ? NAN : r->fma;
}

double bench_share(const bench_result *r)
{
    return (r->reads ? r->bytes : r->flops) / r->best / bench_limit_rate(r);
}

/* ---- operands ---- */

enum { HUGE_PAGE = 2 << 20 };

/* Memory of one row; k and v are adjacent, so that reading both reads one range of memory. */
typedef struct operands {
    size_t q_bytes, kv_bytes, lse_bytes; /* bytes of q (and of out), of k (and of v), and of lse */
    char *q, *k, *out;
    char *lse, *dout, *dq, *dk; /* used for training; dk and dv are also adjacent */
} operands;

/* Allocates zeroed memory, in huge pages if possible, so that page table lookups do not distort the measurement. */
static char *allocate(size_t bytes)
{
    void *memory = NULL;
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (posix_memalign(&memory, HUGE_PAGE, bytes) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    memset(memory, 0, bytes);
    return memory;
}

/* Converts a number between 2^-14 and 2^16 to bf16 (the upper half of a float) or f16, without rounding. */
static uint16_t half_of(float number, mha_dtype dtype)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (dtype == MHA_BF16 || number == 0) return (uint16_t)(bits >> 16);
    const uint32_t sign = bits >> 31, exponent = (bits >> 23 & 0xFF) - 127 + 15, digits = bits >> 13 & 0x3FF;
    return (uint16_t)(sign << 15 | exponent << 10 | digits);
}

/* Fills `data` with a fixed sequence of multiples of 1/128 in (-1, 1), which all three dtypes represent exactly. */
static void fill(void *data, size_t bytes, mha_dtype dtype)
{
    const size_t count = bytes / mha_dtype_size(dtype);
    float *wide = data;
    uint16_t *half = data;
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        /* linear congruential generator; only the upper bits are sufficiently random */
        state = state * 1664525U + 1013904223U;
        const float number = (float)((int)(state >> 24) - 128 + (state >> 24 == 0)) / 128;
        if (dtype == MHA_F32)
            wide[i] = number;
        else
            half[i] = half_of(number, dtype);
    }
}

static bool operands_open(const bench_row *row, mha_dtype dtype, operands *x)
{
    const size_t size = mha_dtype_size(dtype);
    x->q_bytes = (size_t)(row->B * row->H * row->Lq * row->D) * size;
    x->kv_bytes = (size_t)(row->B * row->Hkv * row->Lk * row->D) * size;
    x->q = allocate(x->q_bytes);
    x->k = allocate(2 * x->kv_bytes);
    x->out = allocate(x->q_bytes);
    if (row->training) {
        x->lse_bytes = (size_t)(row->B * row->H * row->Lq) * sizeof(float);
        x->lse = allocate(x->lse_bytes);
        x->dout = allocate(x->q_bytes);
        x->dq = allocate(x->q_bytes);
        x->dk = allocate(2 * x->kv_bytes);
        if (!x->lse || !x->dout || !x->dq || !x->dk) return false;
        fill(x->dout, x->q_bytes, dtype);
    }
    if (!x->q || !x->k || !x->out) return false;
    fill(x->q, x->q_bytes, dtype);
    fill(x->k, 2 * x->kv_bytes, dtype);
    return true;
}

static void operands_close(operands *x)
{
    free(x->q);
    free(x->k);
    free(x->out);
    free(x->lse);
    free(x->dout);
    free(x->dq);
    free(x->dk);
}

/* ---- timing ---- */

enum { SAMPLES_MIN = 5, SAMPLES_MAX = 20000 };
/* Calls shorter than this are timed in groups: reading the clock takes about 30 ns. */
static const double SAMPLE_SECONDS = 20e-6;
/* Longer calls on one thread are timed by the thread's CPU clock, which excludes other programs. */
static const double LONG_SECONDS = 0.001;

typedef struct runner {
    clockid_t clock;
    const mha_attn_plan *plan;
    const mha_attn_args *args;
    const mha_attn_grads *grads; /* NULL = only the forward pass */
    void *workspace;
    size_t workspace_bytes;
} runner;

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static mha_status seconds_of(const runner *r, int64_t calls, double *seconds, mha_error *error)
{
    const double start = now(r->clock);
    for (int64_t i = 0; i < calls; i++) {
        mha_status status = mha_attn_forward(r->plan, r->args, r->workspace, r->workspace_bytes, error);
        if (status == MHA_OK && r->grads)
            status = mha_attn_backward(r->plan, r->args, r->grads, r->workspace, r->workspace_bytes, error);
        if (status != MHA_OK) return status;
    }
    *seconds = (now(r->clock) - start) / (double)calls;
    return MHA_OK;
}

static mha_status time_calls(runner *r, bool alone, double seconds, double *samples, bench_result *result,
                             mha_error *error)
{
    double once = 0;
    mha_status status = seconds_of(r, 1, &once, error); /* warm-up: accesses all pages, raises the clock frequency */
    if (status == MHA_OK) status = seconds_of(r, 1, &once, error);
    const int64_t together = once < SAMPLE_SECONDS ? 1 + (int64_t)(SAMPLE_SECONDS / (once + 1e-9)) : 1;
    if (alone && once > LONG_SECONDS) r->clock = CLOCK_THREAD_CPUTIME_ID;
    const double end = now(CLOCK_MONOTONIC) + seconds;
    int n = 0;
    while (status == MHA_OK && n < SAMPLES_MAX && (n < SAMPLES_MIN || now(CLOCK_MONOTONIC) < end) && !cli_signal())
        status = seconds_of(r, together, &samples[n++], error);
    if (status != MHA_OK) return status;
    result->calls = n * together;
    result->median = mha_median(samples, n);
    result->best = samples[0]; /* sorted by mha_median */
    return MHA_OK;
}

/* ---- machine limits and plan ---- */

/* Measures the machine's limits; each limit in `result` is the maximum of all measurements. */
static mha_status measure_limits(mha_ctx *ctx, const operands *x, bench_result *result, mha_error *error)
{
    double fma, read = 0;
    const int64_t footprint = 2 * (int64_t)x->kv_bytes;
    mha_status status = mha_machine_peak_fma(ctx, &fma, error);
    if (status == MHA_OK && result->reads) status = mha_machine_peak_read(ctx, x->k, footprint, &read, error);
    if (status != MHA_OK) return status;
    if (fma > result->fma) result->fma = fma;
    if (read > result->read) result->read = read;
    return MHA_OK;
}

/* Copies the instruction set, and whether bf16 values are multiplied in pairs, from the plan to `result`. */
static void note_plan(const mha_attn_plan *plan, bench_result *result)
{
    char text[4096];
    mha_attn_plan_describe(plan, 1, text, sizeof text);
    json_t *said = json_loads(text, 0, NULL);
    const char *isa = json_string_value(json_object_get(said, "isa"));
    snprintf(result->isa, sizeof result->isa, "%s", isa ? isa : "");
    json_decref(said);
    result->pairs = mha_attn_plan_weights(plan) == MHA_BF16;
}

static mha_status run_plan(cli_session *s, const mha_attn_plan *plan, const operands *x, double seconds,
                           bench_result *result, mha_error *error)
{
    const mha_attn_args args = {.size = sizeof args,
                                .q.data = x->q,
                                .k.data = x->k,
                                .v.data = x->k + x->kv_bytes,
                                .out.data = x->out,
                                .lse.data = x->lse};
    const mha_attn_grads grads = {.size = sizeof grads,
                                  .dout.data = x->dout,
                                  .out.data = x->out,
                                  .lse.data = x->lse,
                                  .dq.data = x->dq,
                                  .dk.data = x->dk,
                                  .dv.data = x->dk ? x->dk + x->kv_bytes : NULL};
    runner r = {.clock = CLOCK_MONOTONIC,
                .plan = plan,
                .args = &args,
                .grads = result->row->training ? &grads : NULL,
                .workspace_bytes = mha_attn_plan_workspace(plan)};
    r.workspace = mha_alloc(s->ctx, r.workspace_bytes);
    double *samples = malloc(SAMPLES_MAX * sizeof *samples);
    mha_status status = MHA_ERR_MEMORY;
    if (!samples || (r.workspace_bytes > 0 && !r.workspace))
        *error = (mha_error){.status = MHA_ERR_MEMORY, .message = "out of memory for the workspace of a row"};
    else
        status = measure_limits(s->ctx, x, result, error);
    if (status == MHA_OK) status = time_calls(&r, mha_ctx_threads(s->ctx) == 1, seconds, samples, result, error);
    if (status == MHA_OK) status = measure_limits(s->ctx, x, result, error);
    free(samples);
    mha_free(s->ctx, r.workspace);
    return status;
}

static void count_work(const bench_row *row, mha_dtype dtype, bench_result *result)
{
    const double keys = (double)(row->B * row->Lk * row->D);
    result->flops = 4 * keys * (double)(row->H * row->Lq) / (row->causal ? 2 : 1) * (row->training ? 3.5 : 1);
    result->bytes = 2 * keys * (double)row->Hkv * (double)mha_dtype_size(dtype);
    result->reads = row->Lq == 1;
}

int bench_attention(cli_session *s, const bench_row *row, mha_dtype dtype, double seconds, bench_result *result)
{
    *result = (bench_result){.row = row, .dtype = dtype};
    count_work(row, dtype, result);
    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = row->B,
                                .heads = row->H,
                                .kv_heads = row->Hkv,
                                .q_len = row->Lq,
                                .kv_len = row->Lk,
                                .head_dim = row->D,
                                .dtype = dtype,
                                .causal = row->causal,
                                .outputs = row->training ? MHA_ATTN_LSE | MHA_ATTN_GRADS : 0};
    mha_attn_plan *plan;
    mha_error error = {0};
    mha_status status = mha_attn_plan_create(s->ctx, &desc, &plan, &error);
    if (status == MHA_ERR_UNSUPPORTED) {
        snprintf(result->refused, sizeof result->refused, "%s", error.message);
        return CLI_DONE;
    }
    if (status != MHA_OK) return cli_fail(s, &error);
    operands x = {0};
    int code = CLI_DONE;
    if (!operands_open(row, dtype, &x)) {
        code = cli_error(s, CLI_FAILED, "out of memory for row %s", row->name);
    } else {
        note_plan(plan, result);
        if (run_plan(s, plan, &x, seconds, result, &error) != MHA_OK) code = cli_fail(s, &error);
    }
    operands_close(&x);
    mha_attn_plan_free(plan);
    return code == CLI_DONE ? cli_stopped() : code;
}

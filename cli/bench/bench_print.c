/* bench_print.c - prints the results of `mha bench` as a table, JSON or CSV with the same values. */
#include "bench/bench.h"
#include "output.h"
#include <math.h>
#include <string.h>
#include <sys/utsname.h>

/* Writes the name of the CPU, as reported by the system, to text[capacity]. */
static void cpu_name(char *text, size_t capacity)
{
    struct utsname machine;
    snprintf(text, capacity, "%s", uname(&machine) == 0 ? machine.machine : "unknown");
    FILE *info = fopen("/proc/cpuinfo", "r"); /* exists only on Linux */
    char line[256];
    while (info && fgets(line, sizeof line, info)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value) continue;
        snprintf(text, capacity, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
        break;
    }
    if (info) fclose(info);
}

/* ---- JSON ---- */

static json_t *result_json(const cli_session *s, const bench_result *r)
{
    const bench_row *w = r->row;
    json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:i}", "row", w->name, "B", (json_int_t)w->B,
                          "H", (json_int_t)w->H, "Hkv", (json_int_t)w->Hkv, "Lq", (json_int_t)w->Lq, "Lk",
                          (json_int_t)w->Lk, "D", (json_int_t)w->D, "causal", w->causal, "dtype",
                          mha_dtype_name(r->dtype), "threads", mha_ctx_threads(s->ctx));
    if (r->refused[0]) {
        json_object_set_new(o, "refused", json_string(r->refused));
        return o;
    }
    json_object_set_new(o, "isa", json_string(r->isa));
    json_object_set_new(o, "calls", json_integer((json_int_t)r->calls));
    json_object_set_new(o, "best_ms", cli_real(1e3 * r->best));
    json_object_set_new(o, "median_ms", cli_real(1e3 * r->median));
    json_object_set_new(o, "gflops", cli_real(r->flops / r->best / 1e9));
    json_object_set_new(o, "gb_per_s", cli_real(r->bytes / r->best / 1e9));
    json_object_set_new(o, "limit", json_string(bench_limit(r)));
    json_object_set_new(o, "limit_rate", cli_real(bench_limit_rate(r) / 1e9));
    json_object_set_new(o, "share", cli_real(bench_share(r)));
    return o;
}

static int print_json(cli_session *s, const char *cpu, const bench_result *results, int count)
{
    json_t *rows = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(rows, result_json(s, &results[i]));
    json_t *name = json_stringn_nocheck(cpu, strlen(cpu));
    return cli_put_json(s, json_pack("{s:o, s:s, s:o}", "cpu", name, "version", mha_version(), "rows", rows), true);
}

/* ---- CSV ---- */

static void put_csv_numbers(const cli_session *s, const bench_result *r)
{
    fprintf(s->out, "%s,%lld,%.6g,%.6g,%.6g,%.6g,%s,", r->isa, (long long)r->calls, 1e3 * r->best, 1e3 * r->median,
            r->flops / r->best / 1e9, r->bytes / r->best / 1e9, bench_limit(r));
    if (isnan(bench_share(r)))
        fputs(",,", s->out);
    else
        fprintf(s->out, "%.6g,%.4g,", bench_limit_rate(r) / 1e9, bench_share(r));
}

static void print_csv(cli_session *s, const char *cpu, const bench_result *results, int count)
{
    fputs("row,B,H,Hkv,Lq,Lk,D,causal,dtype,threads,isa,calls,best_ms,median_ms,gflops,gb_per_s,limit,limit_rate,share,"
          "cpu,refused\n",
          s->out);
    for (const bench_result *r = results; r < results + count; r++) {
        const bench_row *w = r->row;
        fprintf(s->out, "%s,%lld,%lld,%lld,%lld,%lld,%lld,%d,%s,%d,", w->name, (long long)w->B, (long long)w->H,
                (long long)w->Hkv, (long long)w->Lq, (long long)w->Lk, (long long)w->D, w->causal,
                mha_dtype_name(r->dtype), mha_ctx_threads(s->ctx));
        if (r->refused[0])
            fputs(",,,,,,,,,", s->out);
        else
            put_csv_numbers(s, r);
        cli_put_csv(s->out, cpu);
        fputc(',', s->out);
        cli_put_csv(s->out, r->refused);
        fputc('\n', s->out);
    }
}

/* ---- table ---- */

enum { WITH_MEDIAN = 90 }; /* minimum terminal width at which the column of the median is shown */

static void put_numbers(const cli_session *s, const bench_result *r)
{
    fprintf(s->out, "%10.4f", 1e3 * r->best);
    if (s->columns >= WITH_MEDIAN) fprintf(s->out, " %10.4f", 1e3 * r->median);
    fprintf(s->out, " %7.1f %-7s ", (r->reads ? r->bytes : r->flops) / r->best / 1e9, r->reads ? "GB/s" : "GFLOP/s");
    if (isnan(bench_share(r)))
        fputs("      -\n", s->out);
    else
        fprintf(s->out, "%5.1f %%\n", 100 * bench_share(r));
}

static void print_row(const cli_session *s, const bench_result *r)
{
    const bench_row *w = r->row;
    char shape[64];
    snprintf(shape, sizeof shape, "%lldx%lld/%lldx%lldx%lldx%lld", (long long)w->B, (long long)w->H, (long long)w->Hkv,
             (long long)w->Lq, (long long)w->Lk, (long long)w->D);
    fprintf(s->out, "%-15s %-5s %-21s", w->name, mha_dtype_name(r->dtype), shape);
    if (r->refused[0])
        fprintf(s->out, "  refused: %s\n", cli_shown(r->refused));
    else
        put_numbers(s, r);
}

static void print_table(const cli_session *s, const char *cpu, const bench_result *results, int count)
{
    const char *isa = mha_ctx_isa(s->ctx);
    for (int i = 0; i < count; i++)
        if (results[i].isa[0]) isa = results[i].isa;
    fprintf(s->out, "%s, %s, %d threads, mha %s\n", cli_shown(cpu), isa, mha_ctx_threads(s->ctx), mha_version());
    fprintf(s->out, "%s%-15s %-5s %-21s%10s", cli_dim(s), "row", "type", "BxH/HkvxLqxLkxD", "best ms");
    if (s->columns >= WITH_MEDIAN) fprintf(s->out, " %10s", "median");
    fprintf(s->out, " %15s %7s%s\n", "", "limit", cli_plain(s));
    for (int i = 0; i < count; i++)
        print_row(s, &results[i]);
}

int bench_print(cli_session *s, const bench_result *results, int count)
{
    char cpu[256];
    cpu_name(cpu, sizeof cpu);
    if (s->options.json) return print_json(s, cpu, results, count);
    if (s->options.csv)
        print_csv(s, cpu, results, count);
    else
        print_table(s, cpu, results, count);
    return CLI_DONE;
}

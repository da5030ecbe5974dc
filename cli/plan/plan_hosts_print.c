/* plan_hosts_print.c - prints the result of `mha plan --hosts` as a table, JSON or CSV with the same rows. */
#include "output.h"
#include "plan/plan_hosts.h"
#include "word_wrap.h"
#include <stddef.h>
#include <string.h>

/* ---- values ---- */

typedef struct amount {
    char text[32];
} amount;

/* Formats a number of bytes, such as "1.5 GiB". */
static const char *shown_bytes(amount *a, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        bytes /= 1024;
    snprintf(a->text, sizeof a->text, bytes < 1000 ? "%.3g %s" : "%.0f %s", bytes, units[unit]);
    return a->text;
}

/* Formats a duration, such as "1.5 ms". */
static const char *shown_seconds(amount *a, double seconds)
{
    const bool short_time = seconds < 1;
    const double value = short_time ? 1e3 * seconds : seconds;
    snprintf(a->text, sizeof a->text, value < 1000 ? "%.3g %s" : "%.0f %s", value, short_time ? "ms" : "s");
    return a->text;
}

static const char *mark(const plan_hosts_result *r, int n)
{
    if (!r->rows[n].fits) return "too large";
    if (n == r->choice.smallest) return n == r->choice.fastest ? "smallest, fastest" : "smallest";
    return n == r->choice.fastest ? "fastest" : "";
}

static const mha_host_layout *row_at(const plan_hosts_result *r, int n)
{
    return n < 0 ? NULL : &r->rows[n];
}

/* ---- table ---- */

static void put_heading(const cli_session *s, const plan_hosts_result *r)
{
    const mha_host_options *o = &r->options;
    const mha_host_model *m = &r->model;
    amount memory, bandwidth;
    cli_put_prose(s, 0, 2, "Model: %lld layers of width %lld, %lld query heads and %lld key/value heads of width %lld.",
                  (long long)m->layers, (long long)m->hidden, (long long)m->heads, (long long)m->kv_heads,
                  (long long)m->head_dim);
    cli_put_prose(s, 0, 2, "Job %s: %s.", mha_host_job_key(o->job), mha_host_job_help(o->job));
    cli_put_prose(s, 0, 2, "seq %lld, batch %lld, weights in %s.", (long long)o->seq, (long long)o->batch,
                  mha_dtype_name(o->dtype));
    if (o->job == MHA_HOSTS_TRAIN) cli_put_prose(s, 0, 2, "Moments of AdamW in %s.", mha_dtype_name(o->moments));
    cli_put_prose(
        s, 0, 2,
        "Hosts: up to %lld, each with %s of memory, %.3g operations per second and %s/s of memory bandwidth%s.",
        (long long)o->hosts, shown_bytes(&memory, (double)o->memory), o->speed.flops,
        shown_bytes(&bandwidth, o->speed.bandwidth), r->measured ? " (measured on this machine)" : "");
    if (o->hosts > 1)
        cli_put_prose(s, 0, 2, "Network %s: %.3g us per message and %s/s.", cli_shown(r->network),
                      1e6 * o->network.latency, shown_bytes(&bandwidth, o->network.bandwidth));
    if (r->choice.hiding_tokens > 0)
        cli_put_prose(s, 0, 2, "With at least %.0f tokens per host, computation hides the exchange of keys.",
                      r->choice.hiding_tokens);
}

/* The parts of the memory and the time of a layout. A part that is 0 in all rows has no column. */
static const struct {
    const char *name;
    size_t offset;
    const char *(*shown)(amount *, double);
    bool first; /* true for the first column of a group */
} parts[] = {
#define PART(name, field, shown, first)                      \
    {                                                        \
        name, offsetof(mha_host_layout, field), shown, first \
    }
    PART("weights", weights, shown_bytes, true),          PART("cache", cache, shown_bytes, false),
    PART("activations", activations, shown_bytes, false), PART("exchange", exchange, shown_bytes, false),
    PART("optimizer", optimizer, shown_bytes, false),     PART("memory", bytes, shown_bytes, false),
    PART("compute", compute, shown_seconds, true),        PART("hidden", hidden, shown_seconds, false),
    PART("exposed", exposed, shown_seconds, false),       PART("time", seconds, shown_seconds, false),
#undef PART
};
enum { PARTS = sizeof parts / sizeof *parts, PART_WIDTH = 9 };

static double part_of(const mha_host_layout *row, int part)
{
    double value;
    memcpy(&value, (const char *)row + parts[part].offset, sizeof value);
    return value;
}

static int width_of(const plan_hosts_result *r, int part)
{
    const int name = (int)strlen(parts[part].name);
    for (int n = 0; n < r->choice.count; n++)
        if (part_of(&r->rows[n], part) > 0)
            return (parts[part].first ? 1 : 0) + (name > PART_WIDTH ? name : PART_WIDTH);
    return 0;
}

static void put_columns(const cli_session *s, const plan_hosts_result *r)
{
    fprintf(s->out, "\n%s%5s %3s %5s %5s", cli_dim(s), "hosts", "tp", "cp", "dp");
    for (int p = 0; p < PARTS; p++)
        if (width_of(r, p) > 0) fprintf(s->out, " %*s", width_of(r, p), parts[p].name);
    fprintf(s->out, " %9s%s\n", "tokens/s", cli_plain(s));
}

static void put_row(const cli_session *s, const plan_hosts_result *r, int n)
{
    const mha_host_layout *row = &r->rows[n];
    amount a;
    fprintf(s->out, "%5lld %3lld %5lld %5lld", (long long)(row->tp * row->cp * row->dp), (long long)row->tp,
            (long long)row->cp, (long long)row->dp);
    for (int p = 0; p < PARTS; p++) {
        const double value = part_of(row, p);
        if (width_of(r, p) > 0) fprintf(s->out, " %*s", width_of(r, p), value > 0 ? parts[p].shown(&a, value) : "-");
    }
    fprintf(s->out, row->tokens_per_second < 1000 ? " %9.3g" : " %9.0f", row->tokens_per_second);
    fprintf(s->out, "%s%s\n", *mark(r, n) ? "  " : "", mark(r, n));
}

/* Prints the command that runs a layout over several hosts. */
static void put_command(const cli_session *s, const plan_hosts_result *r, const char *title, const mha_host_layout *row)
{
    const long long hosts = (long long)(row->tp * row->cp * row->dp);
    if (hosts == 1) return;
    fprintf(s->out, "%s: mha-mpi launch -np %lld ", title, hosts);
    if (row->tp > 1) fprintf(s->out, "--tp %lld ", (long long)row->tp);
    fprintf(s->out, "%s ...\n", mha_host_job_key(r->options.job));
}

static void put_choice(const cli_session *s, const plan_hosts_result *r)
{
    const mha_host_layout *row = row_at(r, r->choice.smallest);
    amount memory, seconds;
    if (row) {
        fprintf(s->out, "\n%sSmallest that fits: tp %lld, cp %lld, dp %lld%s\n", cli_bold(s), (long long)row->tp,
                (long long)row->cp, (long long)row->dp, cli_plain(s));
        cli_put_prose(s, 0, 0, "%s per host, %s, %.3g tokens per second.", shown_bytes(&memory, row->bytes),
                      shown_seconds(&seconds, row->seconds), row->tokens_per_second);
        put_command(s, r, "Command", row);
        if (r->choice.fastest != r->choice.smallest)
            put_command(s, r, "Command for the fastest layout", row_at(r, r->choice.fastest));
        return;
    }
    double min = r->rows[0].bytes;
    for (int n = 1; n < r->choice.count; n++)
        min = r->rows[n].bytes < min ? r->rows[n].bytes : min;
    fprintf(s->out, "\n%sNo layout fits%s\n", cli_bold(s), cli_plain(s));
    cli_put_prose(s, 0, 0, "The smallest layout requires %s per host.", shown_bytes(&memory, min));
}

static void print_table(const cli_session *s, const plan_hosts_result *r)
{
    put_heading(s, r);
    put_columns(s, r);
    for (int n = 0; n < r->choice.count; n++)
        put_row(s, r, n);
    put_choice(s, r);
}

/* ---- JSON and CSV ---- */

/* Returns a number of bytes as a JSON integer, or as a JSON real number from 2^63 on. */
static json_t *bytes_json(double bytes)
{
    return bytes < 0x1p63 ? json_integer((json_int_t)bytes) : cli_real(bytes);
}

static json_t *row_json(const plan_hosts_result *r, int n)
{
    const mha_host_layout *row = &r->rows[n];
    json_t *bytes =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "weights", bytes_json(row->weights), "cache",
                  bytes_json(row->cache), "activations", bytes_json(row->activations), "exchange",
                  bytes_json(row->exchange), "optimizer", bytes_json(row->optimizer), "total", bytes_json(row->bytes));
    json_t *seconds =
        json_pack("{s:o, s:o, s:o, s:o}", "compute", cli_real(row->compute), "hidden", cli_real(row->hidden), "exposed",
                  cli_real(row->exposed), "total", cli_real(row->seconds));
    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:o, s:o, s:o}", "hosts", (json_int_t)(row->tp * row->cp * row->dp),
                     "tp", (json_int_t)row->tp, "cp", (json_int_t)row->cp, "dp", (json_int_t)row->dp, "fits", row->fits,
                     "bytes", bytes, "seconds", seconds, "tokens_per_second", cli_real(row->tokens_per_second));
}

static json_t *model_json(const mha_host_model *m)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "layers", (json_int_t)m->layers, "hidden",
                     (json_int_t)m->hidden, "heads", (json_int_t)m->heads, "kv_heads", (json_int_t)m->kv_heads,
                     "head_dim", (json_int_t)m->head_dim, "layer_weights", (json_int_t)m->layer_weights,
                     "output_weights", (json_int_t)m->output_weights, "word_weights", (json_int_t)m->word_weights,
                     "other_weights", (json_int_t)m->other_weights);
}

/* Returns an index as JSON; null if there is none. */
static json_t *index_json(int n)
{
    return n < 0 ? json_null() : json_integer(n);
}

static int print_json(cli_session *s, const plan_hosts_result *r)
{
    const mha_host_options *o = &r->options;
    json_t *rows = json_array();
    for (int n = 0; n < r->choice.count; n++)
        json_array_append_new(rows, row_json(r, n));
    json_t *all = json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:s, s:b, s:{s:o, s:o}, s:o, s:o, s:o}", "model",
                            model_json(&r->model), "job", mha_host_job_key(o->job), "hosts", (json_int_t)o->hosts,
                            "memory", (json_int_t)o->memory, "seq", (json_int_t)o->seq, "batch", (json_int_t)o->batch,
                            "weights", mha_dtype_name(o->dtype), "measured", r->measured, "speed", "flops",
                            cli_real(o->speed.flops), "bandwidth", cli_real(o->speed.bandwidth), "rows", rows,
                            "smallest", index_json(r->choice.smallest), "fastest", index_json(r->choice.fastest));
    if (o->hosts > 1)
        json_object_set_new(all, "network",
                            json_pack("{s:o, s:o}", "latency", cli_real(o->network.latency), "bandwidth",
                                      cli_real(o->network.bandwidth)));
    if (o->job == MHA_HOSTS_TRAIN) json_object_set_new(all, "moments", json_string(mha_dtype_name(o->moments)));
    if (r->choice.hiding_tokens > 0) json_object_set_new(all, "hiding_tokens", cli_real(r->choice.hiding_tokens));
    return cli_put_json(s, all, true);
}

static void print_csv(const cli_session *s, const plan_hosts_result *r)
{
    fputs("hosts,tp,cp,dp,fits,weights_bytes,cache_bytes,activation_bytes,exchange_bytes,optimizer_bytes,bytes,"
          "compute_s,hidden_s,exposed_s,seconds,tokens_per_second,mark\n",
          s->out);
    for (int n = 0; n < r->choice.count; n++) {
        const mha_host_layout *row = &r->rows[n];
        fprintf(s->out, "%lld,%lld,%lld,%lld,%d,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.6g,%.6g,%.6g,%.6g,%.6g,",
                (long long)(row->tp * row->cp * row->dp), (long long)row->tp, (long long)row->cp, (long long)row->dp,
                row->fits, row->weights, row->cache, row->activations, row->exchange, row->optimizer, row->bytes,
                row->compute, row->hidden, row->exposed, row->seconds, row->tokens_per_second);
        cli_put_csv(s->out, mark(r, n));
        fputc('\n', s->out);
    }
}

int plan_hosts_print(cli_session *s, const plan_hosts_result *result)
{
    if (s->options.json) return print_json(s, result);
    if (s->options.csv)
        print_csv(s, result);
    else
        print_table(s, result);
    return CLI_DONE;
}

/* plan_print.c - prints the results of `mha plan` as tables, JSON or CSV with the same values. */
#include "plan/plan_print.h"

#include "output.h"
#include "word_wrap.h"

/* Returns `seconds` of a row in milliseconds; a negative number if the row was not measured. */
static double milliseconds(const plan_result *r, const mha_head_layout *row, double seconds)
{
    return r->measured && !row->refused ? 1e3 * seconds : -1;
}

/* ---- tables ---- */

/* Prints a number with four significant digits, never with an exponent. */
static void put_number(const cli_session *s, int width, double value)
{
    fprintf(s->out, value < 1000 ? " %*.4g" : " %*.0f", width, value);
}

static void put_costs_heading(const cli_session *s, const plan_result *r, const char *first)
{
    fprintf(s->out, "%s%-8s %5s %5s %6s %6s %10s %9s %9s %9s %10s", cli_dim(s), first, "heads", "width", "groups", "kv",
            "parameters", "reduction", "project", "attend", "cache");
    if (r->measured) fprintf(s->out, " %10s %10s", "prefill", "decode");
    fprintf(s->out, "\n%-8s %5s %5s %6s %6s %10s %9s %9s %9s %10s", "", "", "", "", "", "", "", "GFLOP", "GFLOP",
            "MiB");
    if (r->measured) fprintf(s->out, " %10s %10s", "ms", "ms");
    fprintf(s->out, "%s\n", cli_plain(s));
}

static void put_costs(const cli_session *s, const plan_result *r, const mha_head_layout *row)
{
    fprintf(s->out, "%-8s ", mha_head_layout_variant_key(row->variant));
    if (row->left_out) {
        fprintf(s->out, "%5s  %s\n", "-", row->left_out);
        return;
    }
    fprintf(s->out, "%5lld %5lld %6lld %6lld %10lld %9.4f", (long long)row->heads, (long long)row->head_dim,
            (long long)row->kv_groups, (long long)row->kv_heads, (long long)row->weights.total, row->reduction);
    put_number(s, 9, row->project_flops / 1e9);
    put_number(s, 9, row->attend_flops / 1e9);
    put_number(s, 10, (double)row->kv_bytes / (1 << 20));
    if (r->measured && !row->refused) {
        put_number(s, 10, 1e3 * row->prefill);
        put_number(s, 10, 1e3 * row->decode);
    }
    if (row->refused) fprintf(s->out, "  %s", row->refused);
    fputc('\n', s->out);
}

static void put_parameters(const cli_session *s, const plan_result *r)
{
    fprintf(s->out, "\n%sParameters of one layer's attention%s\n", cli_bold(s), cli_plain(s));
    fprintf(s->out, "%s%-8s %10s %10s %10s %10s %8s %10s %11s %9s%s\n", cli_dim(s), "variant", "q", "k", "v", "out",
            "extra", "total", "with biases", "of model", cli_plain(s));
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++) {
        const mha_head_layout *row = &r->variants[v];
        const mha_head_layout_parameters *w = &row->weights;
        if (row->left_out) continue;
        fprintf(s->out, "%-8s %10lld %10lld %10lld %10lld %8lld %10lld %11lld %8.2f%%\n",
                mha_head_layout_variant_key(row->variant), (long long)w->q, (long long)w->k, (long long)w->v,
                (long long)w->out, (long long)w->extra, (long long)w->total, (long long)(w->total + row->biases.total),
                100 * (double)w->total / (double)r->model.parameters);
    }
}

static void print_tables(const cli_session *s, const plan_result *r)
{
    const mha_head_layout_options *m = &r->model;
    cli_put_prose(s, 0, 2, "d_model %lld, %lld layers, a vocabulary of %lld: %lld parameters%s", (long long)m->d_model,
                  (long long)m->layers, (long long)m->vocab, (long long)m->parameters,
                  r->estimated ? ", estimated" : "");
    cli_put_prose(s, 0, 2,
                  "Parameters are counted for one layer's attention. Operations, cache and times are totals over all "
                  "layers, for a causal prefill of %lld x %lld tokens with keys and values in %s%s.",
                  (long long)m->batch, (long long)m->seq, mha_dtype_name(m->dtype),
                  r->measured ? ", and one more token per sequence" : "");
    fprintf(s->out, "\n%sLayouts%s\n", cli_bold(s), cli_plain(s));
    put_costs_heading(s, r, "");
    for (int i = 0; i < r->layout_count; i++)
        put_costs(s, r, &r->layouts[i]);
    fprintf(s->out, "\n%sVariants of %lld heads%s\n", cli_bold(s), (long long)m->heads, cli_plain(s));
    put_costs_heading(s, r, "variant");
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
        put_costs(s, r, &r->variants[v]);
    put_parameters(s, r);
    fprintf(s->out, "\n%sRecommended: %s, %lld query head%s, %lld key/value head%s%s%s\n", cli_bold(s),
            mha_head_layout_variant_key(r->advice.variant), (long long)r->advice.heads, r->advice.heads == 1 ? "" : "s",
            (long long)r->advice.kv_heads, r->advice.kv_heads == 1 ? "" : "s",
            r->advice.experts ? ", with expert heads" : "", cli_plain(s));
    cli_put_prose(s, 0, 0, "%s", r->advice.reason);
}

/* ---- JSON ---- */

static json_t *parameters_json(const mha_head_layout_parameters *p)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "q", (json_int_t)p->q, "k", (json_int_t)p->k, "v",
                     (json_int_t)p->v, "out", (json_int_t)p->out, "extra", (json_int_t)p->extra, "total",
                     (json_int_t)p->total);
}

static json_t *row_json(const plan_result *r, const mha_head_layout *row)
{
    const char *const variant = mha_head_layout_variant_key(row->variant);
    if (row->left_out) return json_pack("{s:s, s:s}", "variant", variant, "left_out", row->left_out);
    json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:I}", "variant", variant, "heads",
                          (json_int_t)row->heads, "head_dim", (json_int_t)row->head_dim, "kv_groups",
                          (json_int_t)row->kv_groups, "kv_heads", (json_int_t)row->kv_heads, "parameters",
                          (json_int_t)row->weights.total, "reduction", cli_real(row->reduction), "weights",
                          parameters_json(&row->weights), "biases", parameters_json(&row->biases), "project_flops",
                          cli_real(row->project_flops), "attend_flops", cli_real(row->attend_flops), "kv_bytes",
                          (json_int_t)row->kv_bytes);
    const double prefill = milliseconds(r, row, row->prefill), decode = milliseconds(r, row, row->decode);
    if (prefill >= 0) json_object_set_new(o, "prefill_ms", cli_real(prefill));
    if (decode >= 0) json_object_set_new(o, "decode_ms", cli_real(decode));
    if (row->refused) json_object_set_new(o, "refused", json_string(row->refused));
    return o;
}

static json_t *rows_json(const plan_result *r, const mha_head_layout *rows, int count)
{
    json_t *all = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(all, row_json(r, &rows[i]));
    return all;
}

static json_t *model_json(const plan_result *r)
{
    const mha_head_layout_options *m = &r->model;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:b, s:o, s:I, s:I}", "d_model", (json_int_t)m->d_model,
                     "heads", (json_int_t)m->heads, "layers", (json_int_t)m->layers, "vocab", (json_int_t)m->vocab,
                     "seq", (json_int_t)m->seq, "batch", (json_int_t)m->batch, "dtype", mha_dtype_name(m->dtype),
                     "parameters", (json_int_t)m->parameters, "estimated", r->estimated, "prune", cli_real(m->prune),
                     "experts", (json_int_t)m->experts, "top_k", (json_int_t)m->top_k);
}

static int print_json(cli_session *s, const plan_result *r)
{
    json_t *advice =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:s}", "variant", mha_head_layout_variant_key(r->advice.variant), "heads",
                  (json_int_t)r->advice.heads, "kv_heads", (json_int_t)r->advice.kv_heads, "experts",
                  (json_int_t)r->advice.experts, "top_k", (json_int_t)r->advice.top_k, "reason", r->advice.reason);
    return cli_put_json(s,
                        json_pack("{s:o, s:o, s:o, s:o}", "model", model_json(r), "rows",
                                  rows_json(r, r->layouts, r->layout_count), "variants",
                                  rows_json(r, r->variants, MHA_HEAD_LAYOUT_VARIANTS), "recommendation", advice),
                        true);
}

/* ---- CSV ---- */

static void put_csv_line(const cli_session *s, const plan_result *r, const char *table, const mha_head_layout *row)
{
    fprintf(s->out, "%s,%s,", table, mha_head_layout_variant_key(row->variant));
    if (row->left_out) {
        fputs(",,,,,,,,,,,", s->out);
        cli_put_csv(s->out, row->left_out);
    } else {
        const double prefill = milliseconds(r, row, row->prefill), decode = milliseconds(r, row, row->decode);
        fprintf(s->out, "%lld,%lld,%lld,%lld,%lld,%lld,%.6g,%.9g,%.9g,%lld,", (long long)row->heads,
                (long long)row->head_dim, (long long)row->kv_groups, (long long)row->kv_heads,
                (long long)row->weights.total, (long long)row->biases.total, row->reduction, row->project_flops,
                row->attend_flops, (long long)row->kv_bytes);
        if (prefill >= 0) fprintf(s->out, "%.6g", prefill);
        fputc(',', s->out);
        if (decode >= 0) fprintf(s->out, "%.6g", decode);
        fputc(',', s->out);
        cli_put_csv(s->out, row->refused ? row->refused : "");
    }
    fputc('\n', s->out);
}

static void print_csv(const cli_session *s, const plan_result *r)
{
    fputs("table,variant,heads,head_dim,kv_groups,kv_heads,parameters,biases,reduction,project_flops,attend_flops,"
          "kv_bytes,prefill_ms,decode_ms,refused\n",
          s->out);
    for (int i = 0; i < r->layout_count; i++)
        put_csv_line(s, r, "layout", &r->layouts[i]);
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
        put_csv_line(s, r, "variant", &r->variants[v]);
}

int plan_print(cli_session *s, const plan_result *result)
{
    if (s->options.json) return print_json(s, result);
    if (s->options.csv)
        print_csv(s, result);
    else
        print_tables(s, result);
    return CLI_DONE;
}

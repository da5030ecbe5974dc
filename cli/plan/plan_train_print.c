/* plan_train_print.c - prints the results of `mha plan --train` as a table, JSON or CSV. */
#include "output.h"
#include "plan/plan_train.h"
#include "word_wrap.h"
#include <math.h>

/* ---- summaries of the seeds ---- */

/* A mean over the seeds, and half of its 95 % interval (NAN for one seed). */
typedef struct estimate {
    double mean, half;
} estimate;

typedef struct summary {
    estimate loss, difference;     /* difference: loss minus that of variant mha with the same seed */
    double step_best, step_median; /* seconds; the minimum and the median over the seeds */
    double token_time;             /* seconds; the minimum over the seeds */
    int64_t peak_bytes;            /* the maximum over the seeds */
} summary;

static summary summarize(const plan_training *r, int variant)
{
    double loss[PLAN_SEEDS], difference[PLAN_SEEDS], medians[PLAN_SEEDS];
    summary s = {.step_best = INFINITY, .token_time = INFINITY};
    for (int64_t n = 0; n < r->seeds; n++) {
        const mha_layout_trial *t = plan_trial(r, variant, n);
        loss[n] = t->loss;
        difference[n] = r->trained[MHA_HEAD_LAYOUT_MHA] ? t->loss - plan_trial(r, MHA_HEAD_LAYOUT_MHA, n)->loss : NAN;
        medians[n] = t->step_median;
        s.step_best = fmin(s.step_best, t->step_best);
        s.token_time = fmin(s.token_time, t->token_time);
        if (t->peak_bytes > s.peak_bytes) s.peak_bytes = t->peak_bytes;
    }
    s.step_median = mha_median(medians, r->seeds);
    mha_mean_interval(loss, r->seeds, &s.loss.mean, &s.loss.half);
    mha_mean_interval(difference, r->seeds, &s.difference.mean, &s.difference.half);
    return s;
}

/* Returns the number of sequences of which the loss was measured, which is the same in all runs. */
static int64_t held_out(const plan_training *r)
{
    int v = 0;
    while (!r->trained[v])
        v++;
    return plan_trial(r, v, 0)->held_out;
}

/* ---- table ---- */

static void put_estimate(const cli_session *s, const char *format, estimate e)
{
    fprintf(s->out, format, e.mean);
    if (isnan(e.half))
        fprintf(s->out, " %7s", "");
    else
        fprintf(s->out, " \xc2\xb1%6.4f", e.half);
}

static void put_row(const cli_session *s, const plan_training *r, int v)
{
    const mha_layout_model *m = &r->models[v];
    fprintf(s->out, "%-8s ", mha_head_layout_variant_key(m->variant));
    if (m->refused) {
        cli_put_wrapped(s->out, s->columns, 9, 9, m->refused);
        return;
    }
    const summary a = summarize(r, v);
    fprintf(s->out, "%10lld %12lld ", (long long)m->parameters, (long long)m->feed_forward);
    put_estimate(s, "%7.4f", a.loss);
    if (v == MHA_HEAD_LAYOUT_MHA || !r->trained[MHA_HEAD_LAYOUT_MHA])
        fprintf(s->out, " %15s", "");
    else
        put_estimate(s, " %+7.4f", a.difference);
    fprintf(s->out, " %7.2f %7.2f %7.1f %8.0f %7.1f\n", 1e3 * a.step_best, 1e3 * a.step_median,
            (double)a.peak_bytes / (1 << 20), m->kv_bytes, 1e6 * a.token_time);
}

static void put_heading(const cli_session *s)
{
    fprintf(s->out, "\n%s%-8s %10s %12s %15s %15s %15s %7s %8s %7s\n", cli_dim(s), "variant", "parameters",
            "feed-forward", "loss", "minus mha", "step", "memory", "cache", "token");
    fprintf(s->out, "%-8s %10s %12s %15s %15s %7s %7s %7s %8s %7s%s\n", "", "", "width", "nats", "nats", "best ms",
            "med. ms", "MiB", "B/token", "us", cli_plain(s));
}

static void print_table(const cli_session *s, const plan_training *r)
{
    const mha_head_layout_options *m = &r->layout;
    cli_put_prose(s, 0, 2, "%s with d_model %lld, %lld layers, %lld heads, a vocabulary of %lld",
                  r->encoder ? "Encoders (bert, masked tokens)" : "Decoders (llama)", (long long)m->d_model,
                  (long long)m->layers, (long long)m->heads, (long long)m->vocab);
    cli_put_prose(s, 0, 2,
                  "%lld steps of %lld x %lld tokens, seed%s %lld, learning rate %g; data of %lld tokens; loss on %lld "
                  "sequences of %s; of more than 512 sequences, each seed selects 512.",
                  (long long)r->steps, (long long)m->batch, (long long)m->seq, r->seeds == 1 ? "" : "s 0 to",
                  (long long)r->seeds - 1, r->rate, (long long)r->data->tokens, (long long)held_out(r),
                  r->held_out ? "other data" : "the last tenth of the data, which is not trained on");
    put_heading(s);
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
        if (r->chosen[v]) put_row(s, r, v);
    fputc('\n', s->out);
    cli_put_prose(s, 0, 0,
                  "loss: mean over the seeds with its 95 %% interval; minus mha: difference for the same seed. step: "
                  "time of a training step; memory: maximum during the steps. %s",
                  r->encoder
                      ? "token: time of a pass over a sequence, per token."
                      : "cache: keys and values of a token; token: time of the next token after a full context.");
}

/* ---- JSON ---- */

static json_t *estimate_json(estimate e)
{
    return json_pack("{s:o, s:o}", "mean", cli_real(e.mean), "interval", cli_real(e.half));
}

static json_t *losses_json(const plan_training *r, int v, bool first)
{
    json_t *list = json_array();
    for (int64_t n = 0; n < r->seeds; n++) {
        const mha_layout_trial *t = plan_trial(r, v, n);
        json_array_append_new(list, cli_real(first ? t->first_loss : t->loss));
    }
    return list;
}

static json_t *row_json(const plan_training *r, int v)
{
    const mha_layout_model *m = &r->models[v];
    const char *const key = mha_head_layout_variant_key(m->variant);
    if (m->refused) return json_pack("{s:s, s:s}", "variant", key, "refused", m->refused);
    const summary a = summarize(r, v);
    json_t *o = json_pack(
        "{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "variant", key, "parameters",
        (json_int_t)m->parameters, "feed_forward", (json_int_t)m->feed_forward, "loss", estimate_json(a.loss), "losses",
        losses_json(r, v, false), "first_losses", losses_json(r, v, true), "step_best_ms", cli_real(1e3 * a.step_best),
        "step_median_ms", cli_real(1e3 * a.step_median), "token_us", cli_real(1e6 * a.token_time), "peak_bytes",
        (json_int_t)a.peak_bytes, "kv_bytes", cli_real(m->kv_bytes), "config", json_loads(m->config, 0, NULL));
    if (v != MHA_HEAD_LAYOUT_MHA && r->trained[MHA_HEAD_LAYOUT_MHA])
        json_object_set_new(o, "minus_mha", estimate_json(a.difference));
    if (m->kept_heads) json_object_set_new(o, "kept_heads", json_integer(m->kept_heads));
    return o;
}

static int print_json(cli_session *s, const plan_training *r)
{
    const mha_head_layout_options *m = &r->layout;
    json_t *rows = json_array();
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
        if (r->chosen[v]) json_array_append_new(rows, row_json(r, v));
    json_t *model =
        json_pack("{s:b, s:I, s:I, s:I, s:I}", "encoder", r->encoder, "d_model", (json_int_t)m->d_model, "layers",
                  (json_int_t)m->layers, "heads", (json_int_t)m->heads, "vocab", (json_int_t)m->vocab);
    json_t *training =
        json_pack("{s:I, s:I, s:I, s:I, s:o, s:I, s:I}", "steps", (json_int_t)r->steps, "seeds", (json_int_t)r->seeds,
                  "batch", (json_int_t)m->batch, "seq", (json_int_t)m->seq, "rate", cli_real(r->rate), "tokens",
                  (json_int_t)r->data->tokens, "held_out_sequences", (json_int_t)held_out(r));
    return cli_put_json(s, json_pack("{s:o, s:o, s:o}", "model", model, "training", training, "variants", rows), true);
}

/* ---- CSV ---- */

/* Writes one line per training run, for other statistics. */
static void print_csv(const cli_session *s, const plan_training *r)
{
    fputs("variant,seed,parameters,feed_forward,kv_bytes,first_loss,loss,step_best_ms,step_median_ms,peak_bytes,"
          "token_us,refused\n",
          s->out);
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++) {
        const mha_layout_model *m = &r->models[v];
        if (!r->chosen[v]) continue;
        for (int64_t n = 0; n < r->seeds && !m->refused; n++) {
            const mha_layout_trial *t = plan_trial(r, v, n);
            fprintf(s->out, "%s,%lld,%lld,%lld,%.9g,%.9g,%.9g,%.6g,%.6g,%lld,%.6g,\n",
                    mha_head_layout_variant_key(m->variant), (long long)n, (long long)m->parameters,
                    (long long)m->feed_forward, m->kv_bytes, t->first_loss, t->loss, 1e3 * t->step_best,
                    1e3 * t->step_median, (long long)t->peak_bytes, 1e6 * t->token_time);
        }
        if (!m->refused) continue;
        fprintf(s->out, "%s,,,,,,,,,,,", mha_head_layout_variant_key(m->variant));
        cli_put_csv(s->out, m->refused);
        fputc('\n', s->out);
    }
}

int plan_train_print(cli_session *s, const plan_training *result)
{
    if (s->options.json) return print_json(s, result);
    if (s->options.csv)
        print_csv(s, result);
    else
        print_table(s, result);
    return CLI_DONE;
}

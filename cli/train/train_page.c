/* train_page.c - writes the HTML page with the log as its data. In long logs, a point is the mean of several steps, so
 * that a curve has at most about POINTS_MAX points. */
#include "train/train_page.h"

#include "output.h"
#include "page/page_data.h"
#include <math.h>
#include <string.h>

enum { POINTS_MAX = 1000, SAMPLES_MAX = 500 };

/* Returns the number of steps per point of a curve. */
static int64_t steps_of_point(const train_run *run)
{
    return train_run_last(run)->step / POINTS_MAX + 1;
}

/* ---- curves ---- */

/* Returns the curves; each point is the mean of `every` steps, and the last point is the mean of the remaining
 * steps. */
static json_t *points_json(const train_run *run, int64_t every)
{
    json_t *step = json_array(), *loss = json_array(), *rate = json_array(), *norm = json_array(),
           *tokens = json_array(), *seconds = json_array(), *open = run->t.gates ? json_array() : NULL;
    double sum[2] = {0};
    int64_t count = 0;
    const int64_t records = mha_train_log_count(run->log);
    for (int64_t n = 1; n < records; n++) { /* skips the record before the first step */
        const mha_train_record *r = mha_train_log_record(run->log, n);
        sum[0] += r->loss, sum[1] += r->norm, count++;
        if (r->step % every && n + 1 < records) continue;
        json_array_append_new(step, json_integer(r->step));
        json_array_append_new(loss, cli_real(sum[0] / (double)count));
        json_array_append_new(norm, cli_real(sum[1] / (double)count));
        json_array_append_new(rate, cli_real(r->rate));
        json_array_append_new(tokens, json_integer(r->tokens));
        json_array_append_new(seconds, cli_real(r->seconds));
        if (open) json_array_append_new(open, cli_real(r->open_heads));
        sum[0] = sum[1] = 0, count = 0;
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o*}", "step", step, "loss", loss, "rate", rate, "norm", norm,
                     "tokens", tokens, "seconds", seconds, "open", open);
}

static json_t *eval_json(const train_run *run)
{
    json_t *step = json_array(), *loss = json_array();
    for (int64_t n = 0; n < mha_train_log_count(run->log); n++) {
        const mha_train_record *r = mha_train_log_record(run->log, n);
        if (isnan(r->eval_loss)) continue;
        json_array_append_new(step, json_integer(r->step));
        json_array_append_new(loss, cli_real(r->eval_loss));
    }
    return json_pack("{s:o, s:o}", "step", step, "loss", loss);
}

/* Returns the newest samples, at most SAMPLES_MAX, in the order of the log. */
static json_t *samples_json(const train_run *run)
{
    json_t *all = json_array();
    int64_t left = SAMPLES_MAX;
    for (int64_t n = mha_train_log_count(run->log) - 1; n >= 0 && left; n--) {
        const mha_train_record *r = mha_train_log_record(run->log, n);
        for (int64_t i = r->sample_count; i > 0 && left; i--, left--) {
            const mha_train_sample *sample = &r->samples[i - 1];
            json_array_insert_new(all, 0,
                                  json_pack("{s:I, s:s%, s:s%}", "step", (json_int_t)r->step, "prompt", sample->prompt,
                                            sample->prompt_bytes, "text", sample->text, sample->text_bytes));
        }
    }
    return all;
}

/* ---- page ---- */

static json_t *moment_json(const mha_train_record *r)
{
    return json_pack("{s:I, s:I, s:o}", "step", (json_int_t)r->step, "tokens", (json_int_t)r->tokens, "seconds",
                     cli_real(r->seconds));
}

static json_t *page_data(const train_run *run)
{
    const mha_model_info *info = mha_model_describe(mha_trainer_model(run->trainer));
    const mha_train_data_info *data = mha_train_data_describe(run->data);
    const int64_t every = steps_of_point(run);
    return json_pack("{s:s, s:s, s:{s:s, s:I, s:I, s:I}, s:o, s:{s:I, s:I}, s:I, s:o, s:o, s:o, s:o, s:o}", "mha",
                     mha_version(), "name", cli_shown(run->name), "model", "family", info->family, "layers",
                     (json_int_t)info->layers, "heads", (json_int_t)info->heads, "parameters",
                     (json_int_t)info->parameters, "settings", train_settings_json(&run->t), "data", "tokens",
                     (json_int_t)data->tokens, "sequences", (json_int_t)data->sequences, "every", (json_int_t)every,
                     "begun", moment_json(mha_train_log_record(run->log, 0)), "last", moment_json(train_run_last(run)),
                     "points", points_json(run, every), "eval", eval_json(run), "samples", samples_json(run));
}

int train_page_write(const train_run *run, FILE *out)
{
    fputs((const char *)train_page_before, out);
    const int whole = page_data_write(page_data(run), out);
    fputs((const char *)train_page_after, out);
    return whole;
}

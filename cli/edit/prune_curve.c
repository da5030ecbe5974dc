/* prune_curve.c - `mha prune --search`: prints the curve of mha/prune_search.h as a table, JSON or a figure. */
#include "draw/chart.h"
#include "edit/prune_job.h"
#include "output.h"
#include "session.h"
#include "word_wrap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct search {
    prune_job *job;
    double limit;                         /* maximum loss increase; INFINITY if not given */
    const mha_prune_point *points, *best; /* [count] the curve; `best` is NULL if no point is within the limit */
    int64_t count;
} search;

/* ---- output ---- */

static json_t *point_json(const mha_prune_point *p)
{
    json_t *all =
        json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:b}", "heads", (json_int_t)p->evaluation.heads[1], "parameters",
                  (json_int_t)p->evaluation.parameters[1], "bytes", (json_int_t)p->evaluation.bytes[1],
                  "kv_bytes_per_token", (json_int_t)p->evaluation.kv_bytes_per_token[1], "loss", cli_real(p->increase),
                  "mean_cosine", cli_real(p->evaluation.comparison.mean_cosine), "tokens_per_second",
                  cli_real(p->evaluation.tokens_per_second[1]), "within", p->within);
    return all;
}

static int put_json(const search *s)
{
    json_t *curve = json_array();
    for (int64_t n = s->count - 1; n >= 0; n--)
        json_array_append_new(curve, point_json(&s->points[n]));
    json_t *best = s->best ? point_json(s->best) : json_null();
    if (s->best) json_object_set_new(best, "removed", prune_parts_json(s->job, s->best));
    return cli_put_json(s->job->session,
                        json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:o}", "model",
                                  cli_shown(s->job->session->model_name), "chosen_by", s->job->chosen_by, "held_out",
                                  s->job->texts.split, "texts", (json_int_t)s->points[0].evaluation.comparison.texts,
                                  "max_loss_increase", cli_real(s->limit), "curve", curve, "best", best),
                        false);
}

static const char *loss_name(const prune_job *job)
{
    return job->info->causal && job->info->logits ? "loss increase" : "1 - cosine";
}

/* Prints the options that repeat this pruning. They name the heads, because --count would choose different heads. */
static void print_options(const search *s, const mha_prune_point *p)
{
    const prune_job *job = s->job;
    prune_parts_print_option(job, p);
    if (job->given.part) fprintf(job->session->out, " --part %s", job->given.part);
    fprintf(job->session->out, "%s%s", job->given.fill ? " --fill" : "", job->given.refit ? " --refit" : "");
    if (job->given.ridge) fprintf(job->session->out, " --ridge %s", job->given.ridge);
    fputc('\n', job->session->out);
}

static void print_best(const search *s)
{
    const cli_session *session = s->job->session;
    const mha_prune_point *best = s->best;
    if (!best || best->count == 0) {
        cli_put_prose(session, 0, 0, "No head can be removed with a loss increase of at most %g.", s->limit);
        return;
    }
    cli_put_prose(session, 0, 0,
                  "With %lld of %lld heads, the loss increases by at most %g on %lld held-out texts (%s). The number "
                  "of heads was chosen on these texts, so evaluate it on different texts. To repeat this pruning:",
                  (long long)best->evaluation.heads[1], (long long)best->evaluation.heads[0], s->limit,
                  (long long)best->evaluation.comparison.texts, s->job->texts.split);
    print_options(s, best);
}

static void print_search(const search *s)
{
    const cli_session *session = s->job->session;
    const bool decodes = s->job->info->kv_bytes_per_token > 0;
    fprintf(session->out, "%s%8s %13s%s %12s  %s%s\n", cli_bold(session), "heads", "parameters",
            decodes ? "     KV bytes" : "", "tokens/s", loss_name(s->job), cli_plain(session));
    for (int64_t n = 0; n < s->count; n++) {
        const mha_prune_point *p = &s->points[n];
        fprintf(session->out, "%8lld %13lld", (long long)p->evaluation.heads[1],
                (long long)p->evaluation.parameters[1]);
        if (decodes) fprintf(session->out, " %12lld", (long long)p->evaluation.kv_bytes_per_token[1]);
        fprintf(session->out, " %12.0f  %.5f%s\n", p->evaluation.tokens_per_second[1], p->increase,
                p == s->best ? "  <-" : "");
    }
    fputc('\n', session->out);
    if (!isinf(s->limit)) print_best(s);
}

/* Draws the curve as a function of the number of kept heads. */
static int draw(const search *s)
{
    enum { CURVES = 4 };
    cli_session *session = s->job->session;
    const int64_t n = s->count;
    double *room = calloc((size_t)(n * (CURVES + 1)), sizeof *room), *x = room;
    if (!room) return cli_error(session, CLI_FAILED, "out of memory for the curve");
    char title[160];
    snprintf(title, sizeof title, "%.90s: heads removed by %.40s", cli_shown(session->model_name), s->job->chosen_by);
    chart c = {.title = title, .x_title = "heads kept", .count = (int)n, .x = x, .mark = NAN};
    static const char *const names[] = {NULL, "parameters", "tokens per second", "KV bytes per token"};
    c.panels = s->job->info->kv_bytes_per_token > 0 ? CURVES : CURVES - 1;
    for (int64_t i = 0; i < n; i++) {
        const mha_prune_point *p = &s->points[n - 1 - i];
        const double values[CURVES] = {p->increase, (double)p->evaluation.parameters[1],
                                       p->evaluation.tokens_per_second[1], (double)p->evaluation.kv_bytes_per_token[1]};
        x[i] = (double)p->evaluation.heads[1];
        for (int k = 0; k < CURVES; k++)
            room[(k + 1) * n + i] = values[k];
    }
    for (int k = 0; k < CURVES; k++)
        c.panel[k] = (chart_panel){k ? names[k] : loss_name(s->job), room + (k + 1) * n, NAN};
    if (!isinf(s->limit)) c.panel[0].limit = s->limit;
    if (s->best && !isinf(s->limit)) c.mark = (double)s->best->evaluation.heads[1];
    unsigned char *data = NULL;
    size_t bytes = 0;
    const char *wrong = chart_draw(&c, session->options.out, &data, &bytes);
    int code = wrong ? cli_error(session, CLI_FAILED, "cannot draw the curve: %s", wrong)
                     : cli_write_file(session, data, bytes);
    if (code == CLI_DONE) cli_say(session, "%s: curve of %lld points", cli_out_name(session), (long long)n);
    free(data);
    free(room);
    return code;
}

static int put_curve(const search *s)
{
    const bool json = s->job->session->options.json;
    int code = s->job->session->options.out ? draw(s) : CLI_DONE;
    if (code == CLI_DONE && json) return put_json(s);
    if (code == CLI_DONE) print_search(s);
    return code;
}

/* Returns true if the loss on the held-out texts is defined. A decoder has a loss for each token after the first. */
static bool has_loss(const prune_job *job)
{
    const mha_head_data *held = job->texts.held;
    return !job->info->causal || !job->info->logits || mha_head_data_tokens(held) > mha_head_data_count(held);
}

int prune_curve(prune_job *job)
{
    if (!has_loss(job))
        return cli_error(job->session, CLI_REFUSED, "--search requires an evaluation text of at least 2 tokens");
    const double limit = job->given.max_increase ? job->max_increase : INFINITY;
    const mha_prune_options how = prune_choice_options(job);
    const mha_prune_search_options o = {.size = sizeof o,
                                        .held_out = job->texts.held,
                                        .scores = job->scores,
                                        .cross_scores = job->rule.cross_scores,
                                        .encoder_scores = job->rule.encoder_scores,
                                        .learn = job->texts.learn,
                                        .per_layer = job->rule.per_layer,
                                        .floor = job->rule.floor,
                                        .prune = &how,
                                        .max_increase = limit};
    mha_prune_curve *curve = NULL;
    mha_error error = {0};
    if (mha_prune_search(job->model, &o, &curve, &error) != MHA_OK) return cli_reject(job->session, &error);
    search s = {.job = job, .limit = limit, .best = mha_prune_curve_best(curve)};
    s.points = mha_prune_curve_points(curve, &s.count);
    const int code = put_curve(&s);
    mha_prune_curve_free(curve);
    return code;
}

/* prune_search.c - `mha prune --search`: ever fewer heads, and the fewest whose loss on held-out texts is still good.
 *
 * A few numbers of heads from none removed to all but the floor are tried first, then every number between the largest
 * good one and the next, which is bad. A curve that goes up and down may hold a good point beyond, between two bad
 * ones: it is not looked for.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "draw/chart.h"
#include "edit/prune_job.h"
#include "output.h"
#include "session.h"
#include "word_wrap.h"

enum { COARSE = 12 };

typedef struct point {
    int64_t count; /* heads that were to go; with --per-layer, of every layer */
    uint8_t *keep; /* [layers, H] which went */
    judgement verdict;
    double increase;
} point;

typedef struct search {
    prune_job *job;
    double limit; /* INFINITY: none was given */
    point *points;
    int64_t used;
    int64_t best; /* of the points; -1 = none */
} search;

/* ---- points ---- */

static bool is_good(const search *s, const point *p)
{
    return p->increase <= s->limit;
}

/* How much worse it is: of causal models the loss, of others 1 - the mean cosine. */
static double loss_increase(const prune_job *job, const judgement *j)
{
    return job->info->causal && job->info->logits ? j->apart.loss[1] - j->apart.loss[0] : 1 - j->apart.mean_cosine;
}

static int try_count(search *s, int64_t count)
{
    mha_model_edit *edit = NULL;
    point *p = &s->points[s->used];
    for (int64_t n = 0; n < s->used; n++)
        if (s->points[n].count == count) return CLI_DONE;
    cli_progress("search", s->used, COARSE);
    int code = prune_choice_make(s->job, count);
    if (code == CLI_DONE) code = prune_make(s->job, &edit, &p->verdict);
    mha_model_edit_free(edit);
    if (code != CLI_DONE) return code;
    const size_t cells = (size_t)(s->job->info->layers * s->job->info->heads);
    p->keep = malloc(cells);
    if (!p->keep) return cli_error(s->job->session, CLI_FAILED, "out of memory for the list of heads");
    memcpy(p->keep, s->job->keep, cells);
    p->count = count;
    p->increase = loss_increase(s->job, &p->verdict);
    s->used++;
    if (isnan(p->increase))
        return cli_error(s->job->session, CLI_REFUSED,
                         "--search: the texts to judge by have no token behind their first: there is no loss");
    return cli_stopped();
}

static int by_count(const void *a, const void *b)
{
    const int64_t x = ((const point *)a)->count, y = ((const point *)b)->count;
    return x < y ? -1 : x > y;
}

/* Sorts the points, and finds the good one of the most heads. */
static void find_best(search *s)
{
    qsort(s->points, (size_t)s->used, sizeof *s->points, by_count);
    s->best = s->used - 1;
    while (s->best >= 0 && !is_good(s, &s->points[s->best]))
        s->best--;
}

static int look_around(search *s, int64_t most)
{
    int code = CLI_DONE;
    for (int64_t n = 0; n <= COARSE && code == CLI_DONE; n++)
        code = try_count(s, most * n / COARSE);
    if (code != CLI_DONE) return code;
    find_best(s);
    if (s->best < 0 || s->best == s->used - 1) return CLI_DONE;
    const int64_t good = s->points[s->best].count, bad = s->points[s->best + 1].count;
    for (int64_t count = good + 1; count < bad && code == CLI_DONE; count++)
        code = try_count(s, count);
    find_best(s);
    return code;
}

/* ---- output ---- */

static json_t *point_json(const search *s, const point *p)
{
    json_t *all = json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:b}", "heads", (json_int_t)p->verdict.heads[1],
                            "parameters", (json_int_t)p->verdict.parameters[1], "bytes",
                            (json_int_t)p->verdict.bytes[1], "kv_bytes_per_token", (json_int_t)p->verdict.kv_bytes[1],
                            "loss", cli_real(p->increase), "mean_cosine", cli_real(p->verdict.apart.mean_cosine),
                            "tokens_per_second", cli_real(p->verdict.speed[1]), "within", (int)is_good(s, p));
    return all;
}

static int put_json(const search *s)
{
    json_t *curve = json_array();
    for (int64_t n = s->used - 1; n >= 0; n--)
        json_array_append_new(curve, point_json(s, &s->points[n]));
    json_t *best = s->best < 0 ? json_null() : point_json(s, &s->points[s->best]);
    if (s->best >= 0) json_object_set_new(best, "removed", prune_removed_json(s->job, s->points[s->best].keep));
    return cli_put_json(s->job->session,
                        json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:o}", "model",
                                  cli_shown(s->job->session->model_name), "chosen_by", s->job->chosen_by, "held_out",
                                  s->job->texts.split, "texts", (json_int_t)s->points[0].verdict.apart.texts,
                                  "max_loss_increase", cli_real(s->limit), "curve", curve, "best", best),
                        false);
}

static const char *loss_name(const prune_job *job)
{
    return job->info->causal && job->info->logits ? "loss increase" : "1 - cosine";
}

/* The options that make that pruning again: its heads, for a choice of fewer would not begin with the same ones. */
static void print_options(const search *s, const point *p)
{
    const prune_job *job = s->job;
    const char *comma = "--heads ";
    for (int64_t l = 0; l < job->info->layers; l++)
        for (int64_t h = 0; h < job->info->heads_per_layer[l]; h++) {
            if (p->keep[l * job->info->heads + h]) continue;
            fprintf(job->session->out, "%s%lld.%lld", comma, (long long)l,
                    (long long)mha_head_number(job->model, l, h));
            comma = ",";
        }
    fprintf(job->session->out, "%s%s", job->given.fill ? " --fill" : "", job->given.refit ? " --refit" : "");
    if (job->given.ridge) fprintf(job->session->out, " --ridge %s", job->given.ridge);
    fputc('\n', job->session->out);
}

static void print_best(const search *s)
{
    const cli_session *session = s->job->session;
    const point *best = s->best < 0 ? NULL : &s->points[s->best];
    if (!best || best->count == 0) {
        cli_put_prose(session, 0, 0, "No head can go within %g.", s->limit);
        return;
    }
    cli_put_prose(session, 0, 0,
                  "%lld of %lld heads are enough for a loss within %g on %lld held-out texts (%s), which chose this "
                  "number: judge it once more on others. To make it:",
                  (long long)best->verdict.heads[1], (long long)best->verdict.heads[0], s->limit,
                  (long long)best->verdict.apart.texts, s->job->texts.split);
    print_options(s, best);
}

static void print_search(const search *s)
{
    const cli_session *session = s->job->session;
    const bool decodes = s->job->info->kv_bytes_per_token > 0;
    fprintf(session->out, "%s%8s %13s%s %12s  %s%s\n", cli_bold(session), "heads", "parameters",
            decodes ? "     KV bytes" : "", "tokens/s", loss_name(s->job), cli_plain(session));
    for (int64_t n = 0; n < s->used; n++) {
        const point *p = &s->points[n];
        fprintf(session->out, "%8lld %13lld", (long long)p->verdict.heads[1], (long long)p->verdict.parameters[1]);
        if (decodes) fprintf(session->out, " %12lld", (long long)p->verdict.kv_bytes[1]);
        fprintf(session->out, " %12.0f  %.5f%s\n", p->verdict.speed[1], p->increase, n == s->best ? "  <-" : "");
    }
    fputc('\n', session->out);
    if (!isinf(s->limit)) print_best(s);
}

/* Curves over the heads that stay, fewest first. */
static int draw(const search *s)
{
    enum { CURVES = 4 };
    cli_session *session = s->job->session;
    const int64_t n = s->used;
    double *room = calloc((size_t)(n * (CURVES + 1)), sizeof *room), *x = room;
    if (!room) return cli_error(session, CLI_FAILED, "out of memory for the curve");
    char title[160];
    snprintf(title, sizeof title, "%.90s: heads removed by %.40s", cli_shown(session->model_name), s->job->chosen_by);
    chart c = {.title = title, .x_title = "heads that stay", .count = (int)n, .x = x, .mark = NAN};
    static const char *const names[] = {NULL, "parameters", "tokens per second", "KV bytes per token"};
    c.panels = s->job->info->kv_bytes_per_token > 0 ? CURVES : CURVES - 1;
    for (int64_t i = 0; i < n; i++) {
        const point *p = &s->points[n - 1 - i];
        const double values[CURVES] = {p->increase, (double)p->verdict.parameters[1], p->verdict.speed[1],
                                       (double)p->verdict.kv_bytes[1]};
        x[i] = (double)p->verdict.heads[1];
        for (int k = 0; k < CURVES; k++)
            room[(k + 1) * n + i] = values[k];
    }
    for (int k = 0; k < CURVES; k++)
        c.panel[k] = (chart_panel){k ? names[k] : loss_name(s->job), room + (k + 1) * n, NAN};
    if (!isinf(s->limit)) c.panel[0].limit = s->limit;
    if (s->best >= 0 && !isinf(s->limit)) c.mark = (double)s->points[s->best].verdict.heads[1];
    unsigned char *data = NULL;
    size_t bytes = 0;
    const char *wrong = chart_draw(&c, session->options.out, &data, &bytes);
    int code = wrong ? cli_error(session, CLI_FAILED, "the curve: %s", wrong) : cli_write_file(session, data, bytes);
    if (code == CLI_DONE) cli_say(session, "%s: the curve of %lld points", cli_out_name(session), (long long)n);
    free(data);
    free(room);
    return code;
}

int prune_search(prune_job *job)
{
    search s = {.job = job, .limit = job->given.max_increase ? job->max_increase : INFINITY, .best = -1};
    const int64_t most = prune_choice_most(job);
    s.points = calloc((size_t)(most + COARSE + 2), sizeof *s.points);
    if (!s.points) return cli_error(job->session, CLI_FAILED, "out of memory for the curve");
    int code = look_around(&s, most);
    cli_progress_clear();
    if (code == CLI_DONE && job->session->options.out) code = draw(&s);
    if (code == CLI_DONE && job->session->options.json)
        code = put_json(&s);
    else if (code == CLI_DONE)
        print_search(&s);
    for (int64_t n = 0; n < s.used; n++)
        free(s.points[n].keep);
    free(s.points);
    return code;
}

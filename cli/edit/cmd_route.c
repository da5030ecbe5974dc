/* cmd_route.c - `mha route`: a router that chooses heads for each text, fitted, judged and written. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "edit/held_out_evaluation.h"
#include "output.h"
#include "word_wrap.h"

enum { MOST_ROWS = 5 };

static struct {
    char *test;
} given;

static const struct poptOption options[] = {
    {"test", 0, POPT_ARG_STRING, &given.test, 0, "judge on these texts (default: every fourth of -f)", "FILE"},
    POPT_TABLEEND};

/* One number of heads: the router, and beside it the same heads for every text. */
typedef struct row {
    int64_t heads;
    mha_comparison routed, fixed;
    double speed[2]; /* tokens per second with all heads, and with the router */
} row;

typedef struct route_job {
    cli_session *session;
    held_texts texts;
    mha_model *model, *routed; /* the second runs with a router */
    mha_router *router, *fixed;
    row rows[MOST_ROWS];
    int count;
} route_job;

/* ---- output ---- */

static double loss_increase(const mha_comparison *c)
{
    return c->loss[1] - c->loss[0];
}

static json_t *rows_json(const route_job *job)
{
    json_t *list = json_array();
    for (int n = 0; n < job->count; n++) {
        const row *r = &job->rows[n];
        json_t *one = json_pack("{s:I, s:o, s:o, s:o, s:[o, o]}", "heads_per_sequence", (json_int_t)r->heads,
                                "mean_cosine", cli_real(r->routed.mean_cosine), "min_cosine",
                                cli_real(r->routed.min_cosine), "fixed_mean_cosine", cli_real(r->fixed.mean_cosine),
                                "tokens_per_second", cli_real(r->speed[0]), cli_real(r->speed[1]));
        if (one && r->routed.foreseen) {
            json_object_set_new(one, "loss_increase", cli_real(loss_increase(&r->routed)));
            json_object_set_new(one, "fixed_loss_increase", cli_real(loss_increase(&r->fixed)));
        }
        json_array_append_new(list, one);
    }
    return list;
}

static void print_rows(const route_job *job)
{
    const cli_session *s = job->session;
    const bool loss = job->count > 0 && job->rows[0].routed.foreseen > 0;
    fprintf(s->out, "%s%5s %9s %9s %12s %9s", cli_bold(s), "heads", "cosine", "least", "fixed heads", "speed");
    fprintf(s->out, "%s%s\n", loss ? "      loss   of fixed" : "", cli_plain(s));
    for (int n = 0; n < job->count; n++) {
        const row *r = &job->rows[n];
        fprintf(s->out, "%5lld %9.4f %9.4f %12.4f %+7.1f %%", (long long)r->heads, r->routed.mean_cosine,
                r->routed.min_cosine, r->fixed.mean_cosine, (r->speed[1] / r->speed[0] - 1) * 100);
        if (loss) fprintf(s->out, " %+9.4f %+10.4f", loss_increase(&r->routed), loss_increase(&r->fixed));
        fputc('\n', s->out);
    }
    fputc('\n', s->out);
    cli_put_prose(s, 0, 0,
                  "Embeddings beside those with all heads, on %lld texts that the router has not seen (%s); fixed: as "
                  "many heads in each layer, the same for every text.",
                  (long long)mha_head_data_count(job->texts.held), job->texts.split);
}

static int put_result(const route_job *job)
{
    cli_session *s = job->session;
    if (!s->options.json) {
        print_rows(job);
        return CLI_DONE;
    }
    return cli_put_json(s,
                        json_pack("{s:s, s:o, s:s, s:I, s:o}", "model", cli_shown(s->model_name), "out",
                                  s->options.out ? json_string(cli_shown(s->options.out)) : json_null(), "held_out",
                                  job->texts.split, "texts", (json_int_t)mha_head_data_count(job->texts.held), "rows",
                                  rows_json(job)),
                        false);
}

/* ---- work ---- */

static int fit(route_job *job)
{
    mha_error error = {0};
    const mha_router_fit_options how = {.size = sizeof how, .seed = (uint64_t)job->session->options.seed};
    if (mha_router_fit(job->model, job->texts.learn, &how, &job->router, &job->fixed, &error) == MHA_OK)
        return CLI_DONE;
    return error.status == MHA_ERR_ARG ? cli_usage(job->session, "%s", error.message)
                                       : cli_refuse(job->session, &error);
}

static int judge_heads(route_job *job, int64_t heads)
{
    mha_error error = {0};
    row *r = &job->rows[job->count];
    *r = (row){.heads = heads};
    if (mha_model_route(job->routed, job->fixed, heads, &error) != MHA_OK ||
        mha_models_compare(job->model, job->routed, job->texts.held, NULL, NULL, &r->fixed, &error) != MHA_OK ||
        mha_model_route(job->routed, job->router, heads, &error) != MHA_OK ||
        mha_models_compare(job->model, job->routed, job->texts.held, NULL, NULL, &r->routed, &error) != MHA_OK)
        return cli_refuse(job->session, &error);
    const int code =
        judge_speed(job->session, (const mha_model *const[]){job->model, job->routed}, job->texts.held, r->speed);
    job->count += code == CLI_DONE;
    return code;
}

/* The heads of the layer that has most, and how many of them are chosen together. */
static void find_group(const route_job *job, int64_t *most, int64_t *group)
{
    const mha_model_info *info = mha_model_describe(job->model);
    const mha_named_tensor *of_layer = mha_router_tensors(job->router, NULL); /* weight [units, E] and bias of each */
    *most = *group = 0;
    for (int64_t l = 0; l < info->layers; l++)
        if (info->heads_per_layer[l] > *most) {
            *most = info->heads_per_layer[l];
            *group = *most / of_layer[2 * l].shape[0];
        }
}

/* One to four units fewer, and half of them, in the layer that has most. */
static int judge_rows(route_job *job)
{
    int64_t most, group;
    find_group(job, &most, &group);
    const int64_t units = most / group, tried[MOST_ROWS] = {units - 1, units - 2, units - 3, units - 4, units / 2};
    int code = CLI_DONE;
    for (int n = 0; n < MOST_ROWS && code == CLI_DONE; n++) {
        const bool again = n > 0 && tried[n] >= tried[n - 1];
        if (tried[n] >= 1 && !again) code = judge_heads(job, tried[n] * group);
    }
    return code;
}

static int save(const route_job *job)
{
    cli_session *s = job->session;
    mha_error error = {0};
    if (!s->options.out) return CLI_DONE;
    if (mha_router_save(job->router, job->model, s->options.out, s->options.force, &error) != MHA_OK)
        return cli_fail(s, &error);
    cli_say(s, "%s: a router for --heads-per-sequence", cli_out_name(s));
    return CLI_DONE;
}

static int work(route_job *job)
{
    int code = cli_model_open(job->session, NULL, &job->model);
    if (code != CLI_DONE) return code;
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    code = held_texts_read(job->session, job->model, given.test, true, NULL, &job->texts);
    if (code == CLI_DONE) code = cli_model_open(job->session, &bare, &job->routed);
    if (code == CLI_DONE) code = fit(job);
    if (code == CLI_DONE) code = judge_rows(job);
    if (code == CLI_DONE) code = save(job);
    return code == CLI_DONE ? put_result(job) : code;
}

static int run(cli_session *s)
{
    route_job job = {.session = s};
    int code = cli_texts_of_file(s, true);
    if (code != CLI_DONE) return code;
    if (!s->options.file) return cli_usage(s, "give texts to fit on with -f FILE");
    if (s->options.out && !cli_out_ends(s, ".safetensors"))
        return cli_usage(s, "-o %s: the name must end in .safetensors", cli_shown(s->options.out));
    code = s->options.out ? cli_check_out(s) : CLI_DONE;
    if (code == CLI_DONE) code = work(&job);
    mha_model_free(job.routed);
    mha_router_free(job.router);
    mha_router_free(job.fixed);
    held_texts_free(&job.texts);
    mha_model_free(job.model);
    return code;
}

const cli_command cli_route = {
    .name = "route",
    .summary = "fit a router that chooses attention heads for each text",
    .usage = "-f FILE",
    .details =
        "The router of a layer looks at the mean of what the layer reads, and keeps the heads that it expects to "
        "matter to that text; with --heads-per-sequence K of embed, score, generate and logits, K heads of each layer "
        "are "
        "computed, and no others. It is fitted on the texts without labels: what a head is worth to a text is what "
        "changes without it. Judged on texts that it has not seen: those of --test, else every fourth of -f.\n"
        "-o MODEL/router.safetensors puts it where those commands find it; a router belongs to the weights that it was "
        "fitted to, by their sha256.\n"
        "--json prints {model, out, held_out, texts, rows: [{heads_per_sequence, mean_cosine, min_cosine, "
        "fixed_mean_cosine, tokens_per_second: [all heads, with the router], and of decoders loss_increase, "
        "fixed_loss_increase}]}.",
    .shared = CLI_MODEL | CLI_FILE | CLI_OUT | CLI_JSON | CLI_SEED,
    .options = options,
    .examples = "mha route -f texts.txt -o router.safetensors\n",
    .run = run,
};

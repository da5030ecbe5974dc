/* prune_judge.c - what a pruning costs and gains: size, and on texts that were held out, quality and speed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "prune_job.h"
#include "session.h"

/* ---- speed ---- */

enum { BATCH_TOKENS = 2048, ROUNDS = 5, MOST_ROUNDS = 200 };
static const double long_enough = 0.5; /* seconds of all rounds together: short passes need many */

/* One pass over the texts, packed. */
static mha_status run_all(const mha_model *model, const mha_head_data *data, int32_t *ids, int64_t *starts,
                          mha_error *err)
{
    const int64_t count = mha_head_data_count(data);
    mha_model_input input = {.size = sizeof input, .ids = ids, .starts = starts};
    for (int64_t i = 0; i < count; i++) {
        int64_t n = 0, next = 0;
        const int32_t *text = mha_head_data_ids(data, i, &n);
        memcpy(ids + starts[input.batch], text, (size_t)n * sizeof *ids);
        starts[input.batch + 1] = starts[input.batch] + n;
        input.batch++;
        if (i + 1 < count) mha_head_data_ids(data, i + 1, &next);
        if (i + 1 < count && starts[input.batch] + next <= BATCH_TOKENS) continue;
        const mha_status status = mha_model_forward(model, &input, NULL, err);
        if (status != MHA_OK) return status;
        input.batch = 0;
    }
    return MHA_OK;
}

/* Tokens per second of both models: the best of rounds in which they take turns. */
static int measure_speed(const prune_job *job, const mha_model *pruned, double speed[2])
{
    const mha_model *models[2] = {job->model, pruned};
    const int64_t tokens = mha_head_data_tokens(job->held), texts = mha_head_data_count(job->held);
    int32_t *ids = calloc((size_t)tokens, sizeof *ids);
    int64_t *starts = calloc((size_t)texts + 1, sizeof *starts);
    double best[2] = {INFINITY, INFINITY};
    mha_error error = {0};
    int code = ids && starts ? CLI_DONE : cli_error(job->session, CLI_FAILED, "out of memory for the texts");
    const double start = cli_seconds();
    for (int round = 0; round < MOST_ROUNDS && code == CLI_DONE; round++) {
        if (round >= ROUNDS && cli_seconds() - start > long_enough) break;
        for (int m = 0; m < 2 && code == CLI_DONE; m++) {
            const double begin = cli_seconds();
            if (run_all(models[m], job->held, ids, starts, &error) != MHA_OK) code = cli_refuse(job->session, &error);
            best[m] = fmin(best[m], cli_seconds() - begin);
            if (code == CLI_DONE) code = cli_stopped();
        }
    }
    for (int m = 0; m < 2; m++)
        speed[m] = (double)tokens / best[m];
    free(ids);
    free(starts);
    return code;
}

/* ---- verdict ---- */

static void measure_size(const mha_model *model, int m, prune_verdict *v)
{
    const mha_model_info *info = mha_model_describe(model);
    for (int64_t l = 0; l < info->layers; l++)
        v->heads[m] += info->heads_per_layer[l];
    v->parameters[m] = info->parameters;
    v->bytes[m] = info->bytes;
    v->kv_bytes[m] = info->kv_bytes_per_token;
}

static int judge(prune_job *job, const mha_pruning *pruning, prune_verdict *v)
{
    mha_model *pruned = NULL;
    mha_error error = {0};
    if (mha_pruning_open(pruning, &pruned, &error) != MHA_OK) return cli_refuse(job->session, &error);
    measure_size(job->model, 0, v);
    measure_size(pruned, 1, v);
    v->judged = job->held != NULL;
    int code = CLI_DONE;
    if (v->judged && mha_models_compare(job->model, pruned, job->held, NULL, NULL, &v->apart, &error) != MHA_OK)
        code = cli_refuse(job->session, &error);
    if (code == CLI_DONE && v->judged) code = measure_speed(job, pruned, v->speed);
    mha_model_free(pruned);
    return code;
}

int prune_judge(prune_job *job, mha_pruning **pruning, prune_verdict *v)
{
    mha_error error = {0};
    const mha_prune_options how = {.size = sizeof how,
                                   .fill = job->given.fill ? job->data : NULL,
                                   .refit = job->given.refit ? job->data : NULL,
                                   .ridge = job->ridge,
                                   .compatible = job->given.compatible,
                                   .chosen_by = job->chosen_by};
    *v = (prune_verdict){0};
    if (mha_prune_make(job->model, job->keep, &how, pruning, &error) != MHA_OK)
        return error.status == MHA_ERR_ARG ? cli_fail(job->session, &error) : cli_refuse(job->session, &error);
    return judge(job, *pruning, v);
}

double prune_loss_increase(const prune_job *job, const prune_verdict *v)
{
    return job->info->causal && job->info->logits ? v->apart.loss[1] - v->apart.loss[0] : 1 - v->apart.mean_cosine;
}

/* ---- JSON ---- */

static json_t *pair(int64_t before, int64_t after)
{
    return json_pack("[I, I]", (json_int_t)before, (json_int_t)after);
}

json_t *prune_quality_json(const prune_job *job, const prune_verdict *v)
{
    json_t *quality = json_pack("{s:s, s:I, s:I, s:o, s:o}", "held_out", job->split, "texts",
                                (json_int_t)v->apart.texts, "tokens", (json_int_t)v->apart.tokens, "mean_cosine",
                                cli_real(v->apart.mean_cosine), "min_cosine", cli_real(v->apart.min_cosine));
    if (quality && v->apart.foreseen)
        json_object_set_new(quality, "loss",
                            json_pack("[o, o]", cli_real(v->apart.loss[0]), cli_real(v->apart.loss[1])));
    return quality;
}

json_t *prune_verdict_json(const prune_job *job, const prune_verdict *v)
{
    json_t *all = json_pack("{s:o, s:o, s:o, s:o}", "heads", pair(v->heads[0], v->heads[1]), "parameters",
                            pair(v->parameters[0], v->parameters[1]), "bytes", pair(v->bytes[0], v->bytes[1]),
                            "kv_bytes_per_token", pair(v->kv_bytes[0], v->kv_bytes[1]));
    if (!all || !v->judged) return all;
    json_object_set_new(all, "quality", prune_quality_json(job, v));
    json_object_set_new(all, "tokens_per_second", json_pack("[o, o]", cli_real(v->speed[0]), cli_real(v->speed[1])));
    return all;
}

/* ---- text ---- */

static void print_row(FILE *out, const char *name, double before, double after, int digits)
{
    fprintf(out, "%-22s %14.*f %14.*f", name, digits, before, digits, after);
    if (before > 0) fprintf(out, " %+8.1f %%", (after / before - 1) * 100);
    fputc('\n', out);
}

static void print_removed(const prune_job *job)
{
    FILE *out = job->session->out;
    for (int64_t l = 0; l < job->info->layers; l++) {
        fprintf(out, "layer %-3lld removed", (long long)l);
        bool any = false;
        for (int64_t h = 0; h < job->info->heads_per_layer[l]; h++) {
            if (job->keep[l * job->info->heads + h]) continue;
            fprintf(out, " %lld", (long long)mha_head_number(job->model, l, h));
            any = true;
        }
        fputs(any ? "\n" : " none\n", out);
    }
}

void prune_print(const prune_job *job, const prune_verdict *v)
{
    FILE *out = job->session->out;
    print_removed(job);
    fprintf(out, "\n%s%-22s %14s %14s %10s%s\n", cli_bold(job->session), "", "before", "after", "change",
            cli_plain(job->session));
    print_row(out, "heads", (double)v->heads[0], (double)v->heads[1], 0);
    print_row(out, "parameters", (double)v->parameters[0], (double)v->parameters[1], 0);
    print_row(out, "bytes of weights", (double)v->bytes[0], (double)v->bytes[1], 0);
    if (v->kv_bytes[0]) print_row(out, "KV bytes per token", (double)v->kv_bytes[0], (double)v->kv_bytes[1], 0);
    if (!v->judged) {
        fputs("\nQuality and speed were not measured: give texts with -f or --test.\n", out);
        return;
    }
    print_row(out, "tokens per second", v->speed[0], v->speed[1], 0);
    if (v->apart.foreseen) print_row(out, "loss", v->apart.loss[0], v->apart.loss[1], 4);
    fprintf(out,
            "\nEmbeddings before and after: cosine %.4f (least %.4f), on %lld texts that nothing was chosen or "
            "fitted on (%s).\n",
            v->apart.mean_cosine, v->apart.min_cosine, (long long)v->apart.texts, job->split);
}

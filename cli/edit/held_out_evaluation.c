/* held_out_evaluation.c - see held_out_evaluation.h. */
#include "edit/held_out_evaluation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "session.h"
#include "word_wrap.h"

/* ---- speed ---- */

enum { BATCH_TOKENS = 2048, ROUNDS = 5, MOST_ROUNDS = 200 };
static const double long_enough = 0.5; /* seconds of all rounds together: short passes need many */
/* Seconds of one pass. Of shorter ones the best of all rounds still changed by 50 % from run to run. */
static const double shortest_pass = 0.02;

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

int judge_speed(cli_session *s, const mha_model *const models[2], const mha_head_data *held, double speed[2])
{
    const int64_t tokens = mha_head_data_tokens(held), texts = mha_head_data_count(held);
    int32_t *ids = calloc((size_t)tokens, sizeof *ids);
    int64_t *starts = calloc((size_t)texts + 1, sizeof *starts);
    double best[2] = {INFINITY, INFINITY};
    mha_error error = {0};
    int code = ids && starts ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory for the texts");
    const double start = cli_seconds();
    for (int round = 0; round < MOST_ROUNDS && code == CLI_DONE; round++) {
        if (round >= ROUNDS && cli_seconds() - start > long_enough) break;
        for (int m = 0; m < 2 && code == CLI_DONE; m++) {
            const double begin = cli_seconds();
            if (run_all(models[m], held, ids, starts, &error) != MHA_OK) code = cli_refuse(s, &error);
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

/* ---- judgement ---- */

static void measure_size(const mha_model *model, int m, judgement *j)
{
    const mha_model_info *info = mha_model_describe(model);
    for (int64_t l = 0; l < info->layers; l++)
        j->heads[m] += info->heads_per_layer[l];
    j->key_heads[m] = info->key_heads_per_layer[0];
    j->value_heads[m] = info->value_heads_per_layer[0];
    j->parameters[m] = info->parameters;
    j->bytes[m] = info->bytes;
    j->kv_bytes[m] = info->kv_bytes_per_token;
}

static const char *find_broken_rule(const mha_model_info *info)
{
    const int64_t heads = info->heads_per_layer[0], keys = info->key_heads_per_layer[0];
    const char *family = info->family;
    for (int64_t l = 0; l < info->layers; l++) {
        if (info->heads_per_layer[l] != heads || info->key_heads_per_layer[l] != keys)
            return "all layers must have the same number of heads";
        if (info->value_heads_per_layer[l] != keys) return "keys and values must have the same number of heads";
    }
    const bool derived = strcmp(family, "bert") == 0 || strcmp(family, "gpt2") == 0;
    if (derived && keys != heads) return "each head must have its own keys and values";
    if (derived && heads * info->head_dim != info->hidden) return "heads must be hidden size / heads wide";
    const bool divides = strcmp(family, "llama") == 0 || strcmp(family, "gemma2") == 0;
    return divides && info->hidden % heads ? "the hidden size must be a multiple of the number of heads" : NULL;
}

void judge_log_transformers(const cli_session *s, const judgement *j)
{
    if (j->broken_rule)
        cli_say(s, "%s: transformers does not load it, as %s; --compatible writes a folder that it loads",
                cli_out_name(s), j->broken_rule);
}

int judge(cli_session *s, const mha_model *model, const mha_model_edit *made, const held_texts *texts, judgement *j)
{
    mha_model *small = NULL;
    mha_error error = {0};
    *j = (judgement){.held_out = texts->held ? texts->split : NULL};
    if (mha_model_edit_open(made, &small, &error) != MHA_OK) return cli_refuse(s, &error);
    measure_size(model, 0, j);
    measure_size(small, 1, j);
    j->broken_rule = find_broken_rule(mha_model_describe(small));
    int code = CLI_DONE;
    if (j->held_out && mha_models_compare(model, small, texts->held, NULL, NULL, &j->apart, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    if (code == CLI_DONE && j->held_out)
        code = judge_speed(s, (const mha_model *const[]){model, small}, texts->held, j->speed);
    mha_model_free(small);
    return code;
}

/* ---- JSON ---- */

json_t *judge_pair(int64_t before, int64_t after)
{
    return json_pack("[I, I]", (json_int_t)before, (json_int_t)after);
}

static json_t *quality_json(const judgement *j)
{
    json_t *quality = json_pack("{s:s, s:I, s:I, s:o, s:o}", "held_out", j->held_out, "texts",
                                (json_int_t)j->apart.texts, "tokens", (json_int_t)j->apart.tokens, "mean_cosine",
                                cli_real(j->apart.mean_cosine), "min_cosine", cli_real(j->apart.min_cosine));
    if (quality && j->apart.foreseen)
        json_object_set_new(quality, "loss",
                            json_pack("[o, o]", cli_real(j->apart.loss[0]), cli_real(j->apart.loss[1])));
    return quality;
}

void judge_add_json(json_t *all, const judgement *j)
{
    json_object_set_new(all, "parameters", judge_pair(j->parameters[0], j->parameters[1]));
    json_object_set_new(all, "bytes", judge_pair(j->bytes[0], j->bytes[1]));
    json_object_set_new(all, "kv_bytes_per_token", judge_pair(j->kv_bytes[0], j->kv_bytes[1]));
    if (!j->held_out) return;
    json_object_set_new(all, "quality", quality_json(j));
    json_object_set_new(all, "tokens_per_second", json_pack("[o, o]", cli_real(j->speed[0]), cli_real(j->speed[1])));
}

int judge_save(cli_session *s, mha_model_edit *made, const judgement *j)
{
    mha_error error = {0};
    mha_status status = MHA_OK;
    if (j->held_out) {
        json_t *quality = quality_json(j);
        char *text = quality ? json_dumps(quality, JSON_REAL_PRECISION(9)) : NULL;
        if (text) status = mha_model_edit_note(made, text, &error);
        json_decref(quality);
        free(text);
        if (!text) return cli_error(s, CLI_FAILED, "out of memory for the record");
    }
    if (status == MHA_OK) status = mha_model_edit_save(made, s->options.out, s->options.force, &error);
    return status == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

/* ---- text ---- */

static void print_row(FILE *out, const char *name, double before, double after, int digits)
{
    fprintf(out, "%-22s %14.*f %14.*f", name, digits, before, digits, after);
    if (before > 0) fprintf(out, " %+8.1f %%", (after / before - 1) * 100);
    fputc('\n', out);
}

void judge_print_title(const cli_session *s)
{
    fprintf(s->out, "%s%-22s %14s %14s %10s%s\n", cli_bold(s), "", "before", "after", "change", cli_plain(s));
}

void judge_print_row(const cli_session *s, const char *name, int64_t before, int64_t after)
{
    print_row(s->out, name, (double)before, (double)after, 0);
}

/* Seconds of the shorter of the two passes. */
static double pass_seconds(const judgement *j)
{
    return (double)j->apart.tokens / fmax(j->speed[0], j->speed[1]);
}

void judge_print_rest(const cli_session *s, const judgement *j, const char *learned, const char *unknown)
{
    judge_print_row(s, "parameters", j->parameters[0], j->parameters[1]);
    judge_print_row(s, "bytes of weights", j->bytes[0], j->bytes[1]);
    if (j->kv_bytes[0]) judge_print_row(s, "KV bytes per token", j->kv_bytes[0], j->kv_bytes[1]);
    if (!j->held_out) {
        fputs("\nQuality and speed were not measured: give texts with -f or --test.\n", s->out);
        return;
    }
    const bool timed = pass_seconds(j) >= shortest_pass;
    if (timed) print_row(s->out, "tokens per second", j->speed[0], j->speed[1], 0);
    if (j->apart.foreseen) print_row(s->out, "loss", j->apart.loss[0], j->apart.loss[1], 4);
    fputc('\n', s->out);
    cli_put_prose(s, 0, 0,
                  "Embeddings before and after: cosine %.4f (least %.4f), on %lld texts that nothing was %s (%s).%s%s",
                  j->apart.mean_cosine, j->apart.min_cosine, (long long)j->apart.texts, learned, j->held_out,
                  unknown ? " " : "", unknown ? unknown : "");
    if (!timed)
        cli_put_prose(
            s, 0, 0,
            "Speed is left out: a pass over these texts is shorter than %.0f ms, and its time changes from run "
            "to run.",
            shortest_pass * 1e3);
}

/* cmd_regroup.c - `mha regroup`: heads that share keys and values, judged on texts that nothing was fitted on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "input.h"
#include "options.h"
#include "output.h"
#include "session.h"
#include "wrap.h"

static struct {
    char *both, *keys, *values, *method, *ridge, *test;
    int contiguous, published, compatible;
} given;

static const struct poptOption options[] = {
    {"kv-heads", 0, POPT_ARG_STRING, &given.both, 0, "key heads and value heads of each layer", "N"},
    {"key-heads", 0, POPT_ARG_STRING, &given.keys, 0, "key heads alone (default: as many as there are)", "N"},
    {"value-heads", 0, POPT_ARG_STRING, &given.values, 0, "value heads alone (default: as many as there are)", "N"},
    {"method", 0, POPT_ARG_STRING, &given.method, 0, "how heads become one (default: closed)", "METHOD"},
    {"test", 0, POPT_ARG_STRING, &given.test, 0, "judge on these texts (default: every fourth of -f)", "FILE"},
    {"ridge", 0, POPT_ARG_STRING, &given.ridge, 0, "of the refit, 0.001 to 1000; 0 = no refit (default: 0.3)", "X"},
    {"contiguous", 0, POPT_ARG_NONE, &given.contiguous, 0, "neighbours share; alike heads are not brought together",
     NULL},
    {"published", 0, POPT_ARG_NONE, &given.published, 0, "the closed form alone: neighbours, uncentred, no refit",
     NULL},
    {"compatible", 0, POPT_ARG_NONE, &given.compatible, 0, "repeated rows, in shapes that transformers loads", NULL},
    POPT_TABLEEND};

typedef struct job {
    cli_session *session;
    mha_model *model, *small;
    mha_regroup_options how;
    cli_texts texts, test_texts;
    mha_head_data *fit, *held;
    const char *split; /* how the two were told apart */
    mha_comparison apart;
    double speed[2]; /* tokens per second, before and after */
} job;

/* ---- texts ---- */

static int tokens_of(const job *j, const char *const *texts, int64_t count, mha_head_data **data)
{
    mha_error error = {0};
    if (mha_head_data_of_texts(j->model, texts, count, NULL, data, &error) != MHA_OK)
        return cli_refuse(j->session, &error);
    return CLI_DONE;
}

/* Every fourth text is held out, so that both parts are alike. */
static int split(job *j)
{
    enum { FOURTH = 4 };
    const int64_t count = j->texts.count;
    if (count < FOURTH)
        return cli_usage(j->session, "-f has %lld texts: give others with --test FILE", (long long)count);
    const char **parts = calloc((size_t)count, sizeof *parts);
    if (!parts) return cli_error(j->session, CLI_FAILED, "out of memory for the texts");
    int64_t fitted = 0, held = count;
    for (int64_t i = 0; i < count; i++)
        if (i % FOURTH == FOURTH - 1)
            parts[--held] = j->texts.text[i];
        else
            parts[fitted++] = j->texts.text[i];
    int code = tokens_of(j, parts, fitted, &j->fit);
    if (code == CLI_DONE) code = tokens_of(j, parts + held, count - held, &j->held);
    free(parts);
    j->split = "every fourth of -f";
    return code;
}

static int read_texts(job *j)
{
    const bool fits = j->how.method != MHA_REGROUP_MEAN || j->how.ridge > 0;
    const char *file = j->session->options.file;
    if (fits && !file) return cli_usage(j->session, "give texts to fit on with -f FILE, or --method mean");
    int code = file ? cli_texts_read_file(j->session, file, &j->texts) : CLI_DONE;
    if (code == CLI_DONE && given.test) code = cli_texts_read_file(j->session, given.test, &j->test_texts);
    if (code != CLI_DONE || (!file && !given.test)) return code;
    if (fits && !given.test) return split(j);
    const cli_texts *held = given.test ? &j->test_texts : &j->texts;
    j->split = given.test ? "--test" : "-f";
    code = tokens_of(j, held->text, held->count, &j->held);
    return code == CLI_DONE && fits ? tokens_of(j, j->texts.text, j->texts.count, &j->fit) : code;
}

/* ---- speed ---- */

/* One pass over the texts, one after another. */
static int run_all(const job *j, const mha_model *model)
{
    mha_error error = {0};
    for (int64_t i = 0; i < mha_head_data_count(j->held); i++) {
        mha_model_input input = {.size = sizeof input, .batch = 1};
        input.ids = mha_head_data_ids(j->held, i, &input.length);
        if (mha_model_forward(model, &input, NULL, &error) != MHA_OK) return cli_refuse(j->session, &error);
    }
    return cli_stopped();
}

/* The best of rounds in which the models take turns. */
static int measure_speed(job *j)
{
    enum { ROUNDS = 5 };
    const mha_model *models[] = {j->model, j->small};
    double best[2] = {INFINITY, INFINITY};
    int code = CLI_DONE;
    for (int n = 0; n < 2 * ROUNDS && code == CLI_DONE; n++) {
        const double begin = cli_seconds();
        code = run_all(j, models[n % 2]);
        best[n % 2] = fmin(best[n % 2], cli_seconds() - begin);
    }
    for (int m = 0; m < 2; m++)
        j->speed[m] = (double)mha_head_data_tokens(j->held) / best[m];
    return code;
}

/* ---- output ---- */

static json_t *pair(double before, double after)
{
    return json_pack("[o, o]", cli_real(before), cli_real(after));
}

static json_t *counts(int64_t before, int64_t after)
{
    return json_pack("[I, I]", (json_int_t)before, (json_int_t)after);
}

static json_t *quality_json(const job *j)
{
    json_t *quality = json_pack("{s:s, s:I, s:I, s:o, s:o}", "held_out", j->split, "texts", (json_int_t)j->apart.texts,
                                "tokens", (json_int_t)j->apart.tokens, "mean_cosine", cli_real(j->apart.mean_cosine),
                                "min_cosine", cli_real(j->apart.min_cosine));
    if (quality && j->apart.foreseen) json_object_set_new(quality, "loss", pair(j->apart.loss[0], j->apart.loss[1]));
    return quality;
}

static json_t *result_json(const job *j)
{
    const mha_model_info *a = mha_model_describe(j->model), *b = mha_model_describe(j->small);
    json_t *all = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "model", cli_shown(j->session->model_name),
                            "out", cli_out_name(j->session), "method", mha_regroup_method_key(j->how.method),
                            "key_heads", counts(a->key_heads_per_layer[0], b->key_heads_per_layer[0]), "value_heads",
                            counts(a->value_heads_per_layer[0], b->value_heads_per_layer[0]), "parameters",
                            counts(a->parameters, b->parameters), "bytes", counts(a->bytes, b->bytes),
                            "kv_bytes_per_token", counts(a->kv_bytes_per_token, b->kv_bytes_per_token));
    if (!all || !j->held) return all;
    json_object_set_new(all, "quality", quality_json(j));
    json_object_set_new(all, "tokens_per_second", pair(j->speed[0], j->speed[1]));
    return all;
}

static void print_row(FILE *out, const char *name, double before, double after, int digits)
{
    fprintf(out, "%-22s %14.*f %14.*f", name, digits, before, digits, after);
    if (before > 0) fprintf(out, " %+8.1f %%", (after / before - 1) * 100);
    fputc('\n', out);
}

static void print_result(const job *j)
{
    const cli_session *s = j->session;
    const mha_model_info *a = mha_model_describe(j->model), *b = mha_model_describe(j->small);
    fprintf(s->out, "%s%-22s %14s %14s %10s%s\n", cli_bold(s), "", "before", "after", "change", cli_plain(s));
    print_row(s->out, "key heads per layer", (double)a->key_heads_per_layer[0], (double)b->key_heads_per_layer[0], 0);
    print_row(s->out, "value heads per layer", (double)a->value_heads_per_layer[0], (double)b->value_heads_per_layer[0],
              0);
    print_row(s->out, "parameters", (double)a->parameters, (double)b->parameters, 0);
    print_row(s->out, "bytes of weights", (double)a->bytes, (double)b->bytes, 0);
    if (a->kv_bytes_per_token)
        print_row(s->out, "KV bytes per token", (double)a->kv_bytes_per_token, (double)b->kv_bytes_per_token, 0);
    if (!j->held) {
        fputs("\nQuality and speed were not measured: give texts with -f or --test.\n", s->out);
        return;
    }
    print_row(s->out, "tokens per second", j->speed[0], j->speed[1], 0);
    if (j->apart.foreseen) print_row(s->out, "loss", j->apart.loss[0], j->apart.loss[1], 4);
    fputc('\n', s->out);
    cli_put_prose(s, 0, 0,
                  "Embeddings before and after: cosine %.4f (least %.4f), on %lld texts that nothing was "
                  "fitted on (%s).",
                  j->apart.mean_cosine, j->apart.min_cosine, (long long)j->apart.texts, j->split);
}

/* ---- work ---- */

/* Measures the result in memory, notes the quality, and writes it. */
static int judge_and_save(job *j, mha_pruning *pruning)
{
    cli_session *s = j->session;
    mha_error error = {0};
    if (mha_pruning_open(pruning, &j->small, &error) != MHA_OK) return cli_refuse(s, &error);
    if (j->held) {
        if (mha_models_compare(j->model, j->small, j->held, NULL, NULL, &j->apart, &error) != MHA_OK)
            return cli_refuse(s, &error);
        const int code = measure_speed(j);
        if (code != CLI_DONE) return code;
        json_t *quality = quality_json(j);
        char *text = quality ? json_dumps(quality, JSON_REAL_PRECISION(9)) : NULL;
        const mha_status status = text ? mha_pruning_note(pruning, text, &error) : MHA_ERR_MEMORY;
        free(text);
        json_decref(quality);
        if (status != MHA_OK) return cli_error(s, CLI_FAILED, "out of memory for the record");
    }
    if (mha_pruning_save(pruning, s->options.out, s->options.force, &error) != MHA_OK) return cli_fail(s, &error);
    cli_say(s, "%s: written", cli_out_name(s));
    if (s->options.json) return cli_put_json(s, result_json(j), false);
    print_result(j);
    return CLI_DONE;
}

static int work(job *j)
{
    mha_error error = {0};
    mha_pruning *pruning = NULL;
    const mha_model_options how = {.size = sizeof how, .no_tokenizer = !j->session->options.file && !given.test};
    int code = cli_model_open(j->session, &how, &j->model);
    if (code == CLI_DONE) code = read_texts(j);
    if (code != CLI_DONE) return code;
    j->how.fit = j->fit;
    if (mha_regroup_make(j->model, &j->how, &pruning, &error) != MHA_OK)
        return error.status == MHA_ERR_ARG ? cli_fail(j->session, &error) : cli_refuse(j->session, &error);
    code = judge_and_save(j, pruning);
    mha_model_free(j->small);
    mha_pruning_free(pruning);
    return code;
}

static int read_method(const cli_session *s, mha_regroup_method *method)
{
    for (int n = 0; n < MHA_REGROUP_METHODS; n++)
        if (!given.method || strcmp(given.method, mha_regroup_method_key((mha_regroup_method)n)) == 0) {
            *method = (mha_regroup_method)n;
            return CLI_DONE;
        }
    return cli_usage(s, "--method \"%s\": closed, mean or values", cli_shown(given.method));
}

static int read_counts(const cli_session *s, mha_regroup_options *how)
{
    long long both = 0, keys = 0, values = 0;
    int code = cli_whole(s, "--kv-heads", given.both, 1, 65536, &both);
    if (code == CLI_DONE) code = cli_whole(s, "--key-heads", given.keys, 1, 65536, &keys);
    if (code == CLI_DONE) code = cli_whole(s, "--value-heads", given.values, 1, 65536, &values);
    if (code != CLI_DONE) return code;
    if (given.both && (given.keys || given.values)) return cli_usage(s, "--kv-heads is for both keys and values");
    if (!given.both && !given.keys && !given.values) return cli_usage(s, "how many heads? --kv-heads N");
    how->key_heads = given.both ? both : keys;
    how->value_heads = given.both ? both : values;
    return CLI_DONE;
}

static int check(const cli_session *s, mha_regroup_options *how)
{
    double ridge = 0;
    int code = read_counts(s, how);
    if (code == CLI_DONE) code = read_method(s, &how->method);
    if (code == CLI_DONE) code = cli_number(s, "--ridge", given.ridge, 0, 1000, &ridge);
    if (code != CLI_DONE) return code;
    if (s->arg_count) return cli_usage(s, "what is \"%s\"? Texts are given with -f FILE", cli_shown(s->args[0]));
    if (given.published && (given.ridge || how->method != MHA_REGROUP_CLOSED))
        return cli_usage(s, "--published is the closed form as it is: without --ridge, and no other --method");
    if (!s->options.out) return cli_usage(s, "-o FOLDER is missing");
    how->ridge = given.published || (given.ridge && ridge == 0) ? -1 : ridge;
    how->contiguous = given.contiguous || given.published;
    how->uncentred = given.published;
    how->compatible = given.compatible;
    return cli_check_out(s);
}

static int run(cli_session *s)
{
    job j = {.session = s, .how = {.size = sizeof(mha_regroup_options)}};
    int code = check(s, &j.how);
    if (code == CLI_DONE) code = work(&j);
    mha_head_data_free(j.fit);
    mha_head_data_free(j.held);
    mha_model_free(j.model);
    cli_texts_free(&j.texts);
    cli_texts_free(&j.test_texts);
    return code;
}

static void print_methods(FILE *out, int columns)
{
    enum { MARGIN = 12 };
    fputs("\nMethods:\n", out);
    for (int n = 0; n < MHA_REGROUP_METHODS; n++) {
        fprintf(out, "  %-*s", MARGIN - 2, mha_regroup_method_key((mha_regroup_method)n));
        cli_put_wrapped(out, columns, MARGIN, MARGIN, mha_regroup_method_help((mha_regroup_method)n));
    }
}

const cli_command cli_regroup = {
    .name = "regroup",
    .summary = "let heads share keys and values, and write the smaller model",
    .usage = "-o FOLDER --kv-heads N [-f FILE]",
    .details =
        "Turns multi-head attention into grouped-query attention, and groups into fewer. Sharing keys costs little, "
        "sharing values is what costs. In closed form the shared heads are those of least error on the texts of -f; "
        "heads that are alike are brought together, and output projections are fitted afterwards. Models with rotary "
        "positions take \"values\": the mean of keys, the closed form for values. The folder has tokenizer and config, "
        "loads here as it is (mha.kv_heads in config.json, or num_key_value_heads), and mha.record says what was "
        "done, to which file (sha256), and how good it is. For transformers, --compatible repeats rows.\n"
        "Quality and speed are measured on texts that nothing was fitted on: those of --test, else every fourth of "
        "-f.\n"
        "--json prints {model, out, method, key_heads, value_heads, parameters, bytes, kv_bytes_per_token, quality, "
        "tokens_per_second}, pairs being before and after.",
    .lists = print_methods,
    .shared = CLI_MODEL | CLI_FILE | CLI_OUT | CLI_JSON,
    .options = options,
    .run = run,
};

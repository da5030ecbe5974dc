/* cmd_generate.c - `mha generate`: streams text from a decoder. */
#include "commands.h"
#include "input/input.h"
#include "input/source_target.h"
#include "input/tokens.h"
#include "logits/head_gates.h"
#include "options.h"
#include "output.h"
#include "run/generate_config.h"
#include "run/generate_print.h"
#include "session.h"
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char **prompts, **stops;
    const char *max, *min, *temperature, *top_k, *top_p, *min_p, *penalty, *ngram, *samples, *at_once, *kv_dtype,
        *lookup, *gates;
    int echo, no_eos;
} given;

static const struct poptOption options[] = {
    {"prompt", 'p', POPT_ARG_ARGV, &given.prompts, 0, "text to continue; may be repeated", "TEXT"},
    {"tokens", 'n', POPT_ARG_STRING, &given.max, 0, "maximum number of new tokens (default: 64, or as many as fit)",
     "N"},
    {"min-tokens", 0, POPT_ARG_STRING, &given.min, 0, "minimum number of new tokens before the text may end", "N"},
    {"temperature", 0, POPT_ARG_STRING, &given.temperature, 0, "sampling temperature; 0 = most likely token (default)",
     "X"},
    {"top-k", 0, POPT_ARG_STRING, &given.top_k, 0, "sample from the K most likely tokens", "K"},
    {"top-p", 0, POPT_ARG_STRING, &given.top_p, 0, "sample from the most likely tokens with total probability P", "P"},
    {"min-p", 0, POPT_ARG_STRING, &given.min_p, 0, "sample from tokens with at least P times the highest probability",
     "P"},
    {"repetition-penalty", 0, POPT_ARG_STRING, &given.penalty, 0,
     "penalize tokens that already occurred, if X is above 1", "X"},
    {"no-repeat-ngram", 0, POPT_ARG_STRING, &given.ngram, 0, "do not repeat any sequence of N tokens", "N"},
    {"stop", 0, POPT_ARG_ARGV, &given.stops, 0, "stop before this text; may be repeated", "TEXT"},
    {"no-eos", 0, POPT_ARG_NONE, &given.no_eos, 0, "do not stop at the model's end-of-text tokens", NULL},
    {"samples", 0, POPT_ARG_STRING, &given.samples, 0, "continuations per prompt (the prompt is computed once)", "N"},
    {"at-once", 0, POPT_ARG_STRING, &given.at_once, 0, "number of texts generated in one batch (default: 8)", "N"},
    {"kv-dtype", 0, POPT_ARG_STRING, &given.kv_dtype, 0,
     "type of the KV cache: f32, bf16, f16, int8, int4, e4m3; default: f32, or bf16 with --dtype bf16 or int8", "TYPE"},
    {"lookup", 0, POPT_ARG_STRING, &given.lookup, 0, "speculate up to N tokens if the text repeats; same output", "N"},
    {"gates", 0, POPT_ARG_STRING, &given.gates, 0, "factors for the outputs of heads; 0 switches a head off",
     "LAYER.HEAD=GATE,..."},
    {"echo", 0, POPT_ARG_NONE, &given.echo, 0, "print each prompt before its continuation", NULL},
    POPT_TABLEEND};

/* ---- options ---- */

static int read_wholes(const cli_session *s, mha_generate_options *o, int64_t *samples)
{
    const struct {
        const char *option, *text;
        int64_t *value;
        long long min, max;
    } wholes[] = {
        {"-n", given.max, &o->max_new, 1, 1LL << 24},
        {"--min-tokens", given.min, &o->min_new, 0, 1LL << 24},
        {"--top-k", given.top_k, &o->sampling.top_k, 0, INT32_MAX},
        {"--no-repeat-ngram", given.ngram, &o->sampling.no_repeat_ngram, 0, INT32_MAX},
        {"--samples", given.samples, samples, 1, 1LL << 20},
        {"--at-once", given.at_once, &o->at_once, 1, 4096},
        {"--lookup", given.lookup, &o->lookup, 0, 64},
    };
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        long long number = *wholes[i].value;
        const int code = cli_whole(s, wholes[i].option, wholes[i].text, wholes[i].min, wholes[i].max, &number);
        if (code != CLI_DONE) return code;
        *wholes[i].value = number;
    }
    if (o->min_new > o->max_new)
        return cli_usage(s, "--min-tokens must be at most -n (got %lld and %lld)", (long long)o->min_new,
                         (long long)o->max_new);
    return CLI_DONE;
}

static int read_numbers(const cli_session *s, mha_sampling *sampling)
{
    int code = cli_number(s, "--temperature", given.temperature, 0, 1e6, &sampling->temperature);
    if (code == CLI_DONE) code = cli_number(s, "--top-p", given.top_p, 0, 1, &sampling->top_p);
    /* for the library, 0 means no filter; --top-p 0 keeps only the most likely token */
    if (code == CLI_DONE && given.top_p && sampling->top_p == 0) sampling->top_p = DBL_MIN;
    if (code == CLI_DONE) code = cli_number(s, "--min-p", given.min_p, 0, 1, &sampling->min_p);
    if (code == CLI_DONE)
        code = cli_number(s, "--repetition-penalty", given.penalty, 0, 1e6, &sampling->repetition_penalty);
    const bool filters = given.top_k || given.top_p || given.min_p || s->options.seed;
    if (code == CLI_DONE && filters && sampling->temperature == 0)
        cli_say(s, "--top-k, --top-p, --min-p and --seed have no effect at temperature 0");
    return code;
}

static int read_options(cli_session *s, mha_generate_options *o, int64_t *samples)
{
    *o = (mha_generate_options){.size = sizeof *o, .max_new = 64, .eos_count = given.no_eos ? -1 : 0};
    *samples = 1;
    o->sampling.seed = (uint64_t)s->options.seed;
    o->stop = given.stops;
    for (; given.stops && given.stops[o->stop_count]; o->stop_count++)
        if (!*given.stops[o->stop_count]) return cli_usage(s, "--stop must be a string of at least 1 byte (got \"\")");
    o->cache_dtype = cli_kv_dtype(given.kv_dtype);
    if (o->cache_dtype == MHA_DTYPE_OTHER)
        return cli_usage(s, "--kv-dtype must be one of f32, bf16, f16, int8, int4, e4m3 (got \"%s\")",
                         cli_shown(given.kv_dtype));
    const int code = read_wholes(s, o, samples);
    return code == CLI_DONE ? read_numbers(s, &o->sampling) : code;
}

/* Reads the prompts from -p, the arguments, -f or standard input. */
static int read_prompts(cli_session *s, cli_texts *texts)
{
    if (given.prompts && s->arg_count > 0) return cli_usage(s, "-p and prompts as arguments are mutually exclusive");
    if (given.prompts)
        for (s->args = given.prompts; s->args[s->arg_count];)
            s->arg_count++;
    return cli_texts_read(s, false, texts);
}

/* ---- generation ---- */

/* The inputs, results and buffers of a run. */
typedef struct job {
    const mha_model *model;
    const cli_texts *texts;
    int64_t samples, count; /* number of continuations per text, and in total */
    mha_encoding **tokens;  /* [texts] encodings of the prompts */
    mha_prompt *prompts;    /* [count] prompts; the samples of one text are adjacent */
    mha_prompt *starts;     /* [count] encoder-decoders: the texts are sources, and the prompts are empty */
    int32_t *ids;           /* [count, max_new] generated ids */
    int64_t *lengths;       /* [count] numbers of generated ids */
    head_gates gates;
    generation shown;
} job;

static int allocate(cli_session *s, job *j, int64_t max_new)
{
    const size_t texts = (size_t)j->texts->count, count = texts * (size_t)j->samples;
    j->count = (int64_t)count;
    j->tokens = calloc(texts, sizeof(mha_encoding *));
    j->prompts = calloc(count, sizeof *j->prompts);
    j->starts = calloc(count, sizeof *j->starts);
    j->ids = calloc(count, (size_t)max_new * sizeof *j->ids);
    j->lengths = calloc(count, sizeof *j->lengths);
    j->shown = (generation){.session = s, .list = calloc(count, sizeof *j->shown.list), .count = j->count};
    if (j->tokens && j->prompts && j->starts && j->ids && j->lengths && j->shown.list) return CLI_DONE;
    return cli_error(s, CLI_FAILED, "out of memory for %lld texts", (long long)count);
}

static void free_job(job *j)
{
    for (int64_t i = 0; j->tokens && i < j->texts->count; i++)
        mha_encoding_free(j->tokens[i]);
    generation_free(&j->shown);
    head_gates_free(&j->gates);
    free(j->tokens);
    free(j->prompts);
    free(j->starts);
    free(j->ids);
    free(j->lengths);
}

static int tokenize(cli_session *s, job *j)
{
    mha_error error = {0};
    const mha_tokenizer *tokenizer = mha_model_tokenizer(j->model);
    for (int64_t i = 0; i < j->texts->count; i++) {
        const char *text = j->texts->text[i];
        const size_t bytes = j->texts->bytes[i];
        if (mha_tokenizer_encode(tokenizer, text, bytes, NULL, 0, NULL, &j->tokens[i], &error) != MHA_OK)
            return cli_refuse(s, &error);
        const int code =
            cli_check_rows(s, tokenizer, j->tokens[i], mha_model_describe(cli_encoder_of(j->model))->vocab);
        if (code != CLI_DONE) return code;
        for (int64_t n = i * j->samples; n < (i + 1) * j->samples; n++) {
            j->prompts[n] = (mha_prompt){j->tokens[i]->ids, j->tokens[i]->count};
            j->shown.list[n].prompt = text;
            j->shown.list[n].prompt_bytes = bytes;
            j->shown.read += j->tokens[i]->count;
        }
    }
    return CLI_DONE;
}

static json_t *integers(const int32_t *ids, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static int put_json(cli_session *s, const job *j, int64_t max_new)
{
    static const char *const endings[] = {[MHA_END_LENGTH] = "length", [MHA_END_EOS] = "eos", [MHA_END_STOP] = "stop"};
    int code = CLI_DONE;
    for (int64_t n = 0; n < j->count && code == CLI_DONE; n++) {
        const generated *t = &j->shown.list[n];
        code = cli_put_json(s,
                            json_pack("{s:s%, s:s%, s:o, s:o, s:s}", "prompt", t->prompt, t->prompt_bytes, "text",
                                      t->text ? t->text : "", t->bytes, "prompt_ids",
                                      integers(j->prompts[n].ids, j->prompts[n].count), "ids",
                                      integers(j->ids + n * max_new, j->lengths[n]), "ended", endings[t->why]),
                            false);
    }
    return code;
}

/* Without -n, limits max_new so that prompt and continuation fit the model's maximum number of positions. With -n, logs
 * if they exceed this maximum. Rotary position embeddings allow this, although the model was not trained on such
 * positions; with a table of positions (gpt2, opt), the library returns an error. */
static void fit(const cli_session *s, const job *j, mha_generate_options *o)
{
    const mha_model_info *info = mha_model_describe(j->model);
    const int64_t max = info->max_positions;
    const bool source = mha_model_encoder(j->model) != NULL;
    int64_t longest = source ? 1 : 0;
    for (int64_t n = 0; !source && n < j->count; n++)
        if (j->prompts[n].count > longest) longest = j->prompts[n].count;
    if (longest + o->max_new <= max) return;
    if (!given.max && longest < max) {
        o->max_new = max - longest;
        cli_say(s, "at most %lld new tokens: the model accepts %lld tokens, the prompt has %lld", (long long)o->max_new,
                (long long)max, (long long)longest);
    } else if (!source && !info->position_table) {
        cli_say(s,
                "output may reach %lld tokens including the prompt, but the model was trained on sequences of at most "
                "%lld (max_position_embeddings)",
                (long long)(longest + o->max_new), (long long)max);
    }
}

static int run_job(cli_session *s, job *j, mha_generate_options *o)
{
    mha_error error = {0};
    generation *g = &j->shown;
    int code = allocate(s, j, o->max_new);
    if (code == CLI_DONE) code = tokenize(s, j);
    if (code == CLI_DONE) code = head_gates_read(s, j->model, given.gates, false, false, NULL, &j->gates);
    if (code != CLI_DONE) return code;
    fit(s, j, o);
    generate_config_say(s, o, given.max != NULL);
    g->stream = !s->options.json;
    g->echo = given.echo;
    g->start = cli_seconds();
    g->since = -1;
    if (g->stream && isatty(STDOUT_FILENO)) cli_progress_off();
    o->on_prompt = generation_prompt, o->on_token = generation_token;
    o->on_text = generation_text, o->on_end = generation_end;
    o->user = g;
    o->gates = j->gates.gates;
    const bool source = mha_model_encoder(j->model) != NULL;
    if (source) o->sources = j->prompts;
    const mha_prompt *prompts = source ? j->starts : j->prompts;
    const cli_shared_texts *shared = source ? NULL : s->shared;
    const mha_status status =
        shared ? shared->generate(shared->user, j->model, prompts, j->count, o, j->ids, j->lengths, &error)
               : mha_model_generate(j->model, prompts, j->count, o, j->ids, j->lengths, &error);
    if (status != MHA_OK) {
        generation_break(g);
        return g->code != CLI_DONE || cli_stdout_closed() ? g->code : cli_refuse(s, &error);
    }
    code = g->code != CLI_DONE ? g->code : cli_stopped();
    if (code == CLI_DONE && s->options.json) code = put_json(s, j, o->max_new);
    if (code == CLI_DONE) generation_times(g);
    return code;
}

static int run(cli_session *s)
{
    cli_texts texts;
    mha_model *model = NULL;
    mha_generate_options o;
    job j = {.texts = &texts};
    int code = read_options(s, &o, &j.samples);
    if (code == CLI_DONE) code = read_prompts(s, &texts);
    if (code != CLI_DONE) return code;
    code = cli_model_open(s, NULL, &model);
    if (code == CLI_DONE && !mha_model_describe(model)->causal)
        code = cli_error(s, CLI_REFUSED, "%s must be a decoder (got an encoder, %s)", cli_shown(s->model_name),
                         mha_model_describe(model)->family);
    if (code == CLI_DONE) code = cli_model_check_text(s, model);
    j.model = model;
    if (code == CLI_DONE) code = run_job(s, &j, &o);
    free_job(&j);
    mha_model_free(model);
    cli_texts_free(&texts);
    return code;
}

static const char *unshared(const cli_session *s)
{
    return given.gates ? "--gates" : given.prompts ? NULL : cli_unshared_stdin(s);
}

const cli_command cli_generate = {
    .name = "generate",
    .summary = "continue a prompt, streaming the output: greedy or sampled",
    .usage = "-p PROMPT... | PROMPT... | -f FILE",
    .details =
        "Text is streamed to stdout without the prompt, in the order of the prompts. Control characters "
        "are printed as escapes. --json prints the text unchanged, at the end of the run, one object per line: "
        "{prompt, text, prompt_ids, ids, ended}; ended is length, eos or stop. The text of a prompt "
        "depends on the prompt, the options and the seed, not on the other prompts; text number n uses seed + n "
        "- 1. Of generation_config.json, only eos_token_id is used; stderr lists the options that correspond to "
        "its other settings. For an encoder-decoder (t5, bart, mbart, marian), the prompt is the source, the text "
        "is the target, and decoder_start_token_id, forced_bos_token_id, forced_eos_token_id and bad_words_ids "
        "are used too. --gates 0.2=0,1.3=0.5 multiplies the output of head 2 of layer 0 by 0 and that of head 3 of "
        "layer 1 by 0.5, for the prompt and all new tokens. Ctrl-C stops the generation; the text printed so far "
        "remains.",
    .shared = CLI_MODEL | CLI_FILE | CLI_JSON | CLI_SEED | CLI_DTYPE,
    .options = options,
    .examples = "mha generate \"One day Clara finds\"\n"
                "mha generate --gates 0.7=0 -n 20 \"One day Clara finds\"\n"
                "mha generate --temperature 0.8 --top-p 0.95 --samples 3 -s 1 \"One day\"\n",
    .unshared = unshared,
    .run = run,
};

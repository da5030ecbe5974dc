/* cmd_lens.c - `mha lens`: shows what a model predicts after each of its layers. */
#include "commands.h"
#include "lens/lens_page.h"
#include "options.h"
#include "output.h"
#include "page/page_file.h"
#include "word_wrap.h"
#include <math.h>
#include <stdlib.h>

static struct {
    const char *top, *target, *position;
} given;

static const struct poptOption options[] = {
    {"top", 0, POPT_ARG_STRING, &given.top, 0, "number of tokens to list per layer (default: 3)", "N"},
    {"target", 0, POPT_ARG_STRING, &given.target, 0, "token whose probability and rank are shown at the position",
     "TOKEN"},
    {"position", 0, POPT_ARG_STRING, &given.position, 0,
     "token whose predictions are listed: its index, -1 = the last (default), or the token itself", "N"},
    POPT_TABLEEND};

/* A lens, and what was asked. */
typedef struct lens {
    const mha_model *model;
    cli_sequence prompt;
    int32_t *targets; /* [count] */
    int64_t position;
    long long top;
    mha_logit_lens *r;
} lens;

static json_t *entry_name(int64_t entry)
{
    return entry == 0 ? json_string("embed") : json_sprintf("%lld", (long long)entry - 1);
}

/* Returns the details of a cell: the list of predictions, the target, and the divergence. */
static json_t *note_of(const lens *x, int64_t entry, int64_t token)
{
    const mha_logit_lens *r = x->r;
    const int64_t at = entry * r->tokens + token;
    json_t *names = json_string("");
    for (int64_t n = 0; n < r->top; n++) {
        json_t *name = circuit_token(&x->prompt, r->top_ids[at * r->top + n]);
        json_t *more = json_sprintf("%s%s\"%s\" %.1f %%", json_string_value(names), n ? ", " : "",
                                    json_string_value(name), 100 * r->top_probs[at * r->top + n]);
        json_decref(names);
        json_decref(name);
        names = more;
    }
    json_t *target = r->target_ranks[at] < 0 ? json_string("") : circuit_token(&x->prompt, r->targets[token]);
    json_t *note = r->target_ranks[at] < 0
                       ? json_sprintf("%s; KL %.3f nats", json_string_value(names), r->divergences[at])
                       : json_sprintf("%s; target \"%s\": rank %lld, %.1f %%; KL %.3f nats", json_string_value(names),
                                      json_string_value(target), (long long)r->target_ranks[at],
                                      100 * exp(r->target_logprobs[at]), r->divergences[at]);
    json_decref(names);
    json_decref(target);
    return note;
}

static json_t *lens_map(const lens *x)
{
    const mha_logit_lens *r = x->r;
    json_t *map = circuit_map("Prediction after each layer",
                              "The token with the largest logit, colored by its probability. \"embed\" is the input of "
                              "layer 0; the last row is the output of the model.",
                              "probability", "layer", "token");
    for (int64_t t = 0; t < r->tokens; t++)
        circuit_map_column(map, circuit_token(&x->prompt, x->prompt.ids[t]));
    for (int64_t e = 0; e < r->entries; e++) {
        circuit_map_row(map, entry_name(e));
        for (int64_t t = 0; t < r->tokens; t++) {
            const int64_t at = (e * r->tokens + t) * r->top;
            circuit_map_cell(map, r->top_probs[at], circuit_token(&x->prompt, r->top_ids[at]), note_of(x, e, t));
        }
    }
    return map;
}

/* ---- output ---- */

static json_t *grid_json(const lens *x, json_t *(*cell)(const lens *, int64_t))
{
    json_t *rows = json_array();
    for (int64_t e = 0; e < x->r->entries; e++) {
        json_t *row = json_array();
        for (int64_t t = 0; t < x->r->tokens; t++)
            json_array_append_new(row, cell(x, e * x->r->tokens + t));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *top_of(const lens *x, int64_t at)
{
    json_t *list = json_array();
    for (int64_t n = at * x->r->top; n < (at + 1) * x->r->top; n++)
        json_array_append_new(list, json_pack("{s:I, s:o, s:o}", "id", (json_int_t)x->r->top_ids[n], "token",
                                              circuit_token(&x->prompt, x->r->top_ids[n]), "probability",
                                              cli_real(x->r->top_probs[n])));
    return list;
}

static json_t *logprob_of(const lens *x, int64_t at)
{
    return cli_real(x->r->target_logprobs[at]);
}

static json_t *rank_of(const lens *x, int64_t at)
{
    return x->r->target_ranks[at] < 0 ? json_null() : json_integer(x->r->target_ranks[at]);
}

static json_t *divergence_of(const lens *x, int64_t at)
{
    return cli_real(x->r->divergences[at]);
}

static int put_json(cli_session *s, const lens *x)
{
    json_t *ids = json_array(), *wanted = json_array();
    for (int64_t t = 0; t < x->r->tokens; t++) {
        json_array_append_new(ids, json_integer(x->prompt.ids[t]));
        json_array_append_new(wanted, x->r->targets[t] < 0 ? json_null() : json_integer(x->r->targets[t]));
    }
    return cli_put_json(s,
                        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "model", cli_shown(s->model_name), "ids",
                                  ids, "tokens", circuit_tokens(&x->prompt), "targets", wanted, "top",
                                  grid_json(x, top_of), "target_logprobs", grid_json(x, logprob_of), "target_ranks",
                                  grid_json(x, rank_of), "kl", grid_json(x, divergence_of)),
                        false);
}

static void put_csv(const cli_session *s, const lens *x)
{
    const mha_logit_lens *r = x->r;
    fputs("layer,token,text,rank,id,prediction,probability,kl\n", s->out);
    for (int64_t n = 0; n < r->entries * r->tokens * r->top; n++) {
        const int64_t at = n / r->top;
        json_t *layer = entry_name(at / r->tokens), *text = circuit_token(&x->prompt, x->prompt.ids[at % r->tokens]);
        json_t *prediction = circuit_token(&x->prompt, r->top_ids[n]);
        fprintf(s->out, "%s,%lld,", json_string_value(layer), (long long)(at % r->tokens));
        cli_put_csv(s->out, json_string_value(text));
        fprintf(s->out, ",%lld,%d,", (long long)(n % r->top), (int)r->top_ids[n]);
        cli_put_csv(s->out, json_string_value(prediction));
        fprintf(s->out, ",%.9g,%.9g\n", r->top_probs[n], r->divergences[at]);
        json_decref(layer);
        json_decref(text);
        json_decref(prediction);
    }
}

/* Prints the predictions of all layers at the position. */
static void put_position(const cli_session *s, const lens *x)
{
    json_t *at = circuit_token(&x->prompt, x->prompt.ids[x->position]);
    fprintf(s->out, "\n%safter token %lld, \"%s\"%s\n", cli_bold(s), (long long)x->position,
            cli_shown(json_string_value(at)), cli_plain(s));
    json_decref(at);
    for (int64_t e = 0; e < x->r->entries; e++) {
        json_t *layer = entry_name(e), *note = note_of(x, e, x->position);
        fprintf(s->out, "%5s  ", json_string_value(layer));
        cli_put_prose(s, 7, 7, "%s", cli_shown(json_string_value(note)));
        json_decref(layer);
        json_decref(note);
    }
}

static int put_result(cli_session *s, const lens *x)
{
    int code = CLI_DONE;
    if (s->options.out) code = lens_page_write(s, "Logit lens", json_array(), json_pack("[o]", lens_map(x)));
    if (code != CLI_DONE) return code;
    if (s->options.json) return put_json(s, x);
    if (s->options.csv) {
        put_csv(s, x);
    } else if (!s->options.out) {
        json_t *map = lens_map(x);
        circuit_map_print(s, map);
        json_decref(map);
        put_position(s, x);
    }
    return CLI_DONE;
}

/* ---- measurement ---- */

/* Sets the targets: the next token of the text in a decoder, the token itself in an encoder, and --target at the
 * position. */
static int read_targets(const cli_session *s, lens *x)
{
    const bool causal = mha_model_describe(x->model)->causal;
    x->targets = calloc((size_t)x->prompt.count, sizeof *x->targets);
    if (!x->targets) return cli_error(s, CLI_FAILED, "out of memory for %lld tokens", (long long)x->prompt.count);
    for (int64_t t = 0; t < x->prompt.count; t++)
        x->targets[t] = !causal ? x->prompt.ids[t] : t + 1 < x->prompt.count ? x->prompt.ids[t + 1] : MHA_IGNORE;
    if (!given.target) return CLI_DONE;
    return cli_sequence_answer(s, x->model, &x->prompt, "--target", given.target, &x->targets[x->position]);
}

/* Fails if the logits of a layer are not finite: no token has the largest one. */
static int check_finite(const cli_session *s, const lens *x)
{
    int code = CLI_DONE;
    for (int64_t n = 0; n < x->r->entries * x->r->tokens && code == CLI_DONE; n++) {
        char what[64];
        json_t *layer = entry_name(n / x->r->tokens);
        snprintf(what, sizeof what, "the largest probability of layer %s at token %lld", json_string_value(layer),
                 (long long)(n % x->r->tokens));
        json_decref(layer);
        code = cli_finite(s, x->prompt.where, what, x->r->top_probs[n * x->r->top]);
    }
    return code;
}

static int measure(cli_session *s, lens *x)
{
    mha_error error = {0};
    const mha_logit_lens_options o = {.size = sizeof o, .top = x->top, .targets = x->targets};
    if (mha_logit_lens_measure(x->model, x->prompt.ids, x->prompt.count, &o, &x->r, &error) != MHA_OK)
        return cli_refuse(s, &error);
    const int code = check_finite(s, x);
    return code == CLI_DONE ? put_result(s, x) : code;
}

static int run(cli_session *s)
{
    lens x = {.top = 3};
    mha_model *model = NULL;
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    int code = cli_whole(s, "--top", given.top, 1, 100, &x.top);
    if (code == CLI_DONE) code = page_file_check(s);
    if (code == CLI_DONE) code = cli_model_open(s, &bare, &model);
    x.model = model;
    if (code == CLI_DONE && mha_model_describe(model)->image_channels > 0)
        code = cli_error(s, CLI_REFUSED, "%s must read text (got %s, which reads images: use mha logits IMAGE.png)",
                         cli_shown(s->model_name), mha_model_describe(model)->family);
    if (code == CLI_DONE) code = cli_sequence_read(s, model, &x.prompt);
    x.position = x.prompt.count - 1;
    if (code == CLI_DONE) code = cli_sequence_position(s, &x.prompt, "--position", given.position, &x.position);
    if (code == CLI_DONE) code = read_targets(s, &x);
    if (code == CLI_DONE) code = measure(s, &x);
    mha_logit_lens_free(x.r);
    cli_sequence_free(&x.prompt);
    free(x.targets);
    mha_model_free(model);
    return code;
}

const cli_command cli_lens = {
    .name = "lens",
    .summary = "show what a model predicts after each of its layers",
    .usage = "TEXT | -f FILE",
    .details =
        "The logit lens applies the output head of the model, with the statistics of each hidden state, after every "
        "layer. The grid shows the most likely token at every position; below it, the most likely tokens at one "
        "position, the probability and rank of the target (by default the next token of the text; in an encoder the "
        "token itself), and the divergence KL(output, layer) in nats. A model with tied embeddings predicts the token "
        "itself in early layers; this is not knowledge of the text.\n"
        "-o FILE.html writes a page of the grid with the details of every cell, and a name that ends in .png, .svg or "
        ".pdf a figure of the grid. --json prints {model, ids, tokens, "
        "targets, top: [layers + 1][tokens][{id, token, probability}], target_logprobs, target_ranks, kl: [layers + "
        "1][tokens]}; --csv prints one line per layer, token and prediction. kl is in nats. The figure of a long text "
        "has several rows of tokens.",
    .shared = CLI_MODEL | CLI_FILE | CLI_IDS | CLI_OUT | CLI_JSON | CLI_CSV | CLI_DTYPE,
    .options = options,
    .examples = "mha lens \"The horses near the dog\" --top 3 --target \" run\"\n"
                "mha lens \"The horses near the dog\" -o lens.html\n",
    .run = run,
};

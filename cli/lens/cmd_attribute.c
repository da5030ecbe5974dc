/* cmd_attribute.c - `mha attribute`: splits the logit of an answer into the parts that a decoder's components write. */
#include "commands.h"
#include "lens/attribution_parts.h"
#include "lens/lens_page.h"
#include "options.h"
#include "output.h"
#include "page/page_file.h"
#include "word_wrap.h"
#include <stdlib.h>
#include <string.h>

static struct {
    const char *answer, *wrong, *position, *by, *target;
} given;

static const struct poptOption options[] = {
    {"answer", 0, POPT_ARG_STRING, &given.answer, 0, "token whose logit is split, with its leading space (required)",
     "TOKEN"},
    {"wrong", 0, POPT_ARG_STRING, &given.wrong, 0, "token whose logit is subtracted", "TOKEN"},
    {"position", 0, POPT_ARG_STRING, &given.position, 0,
     "token after which the answer is predicted: its index, -1 = the last (default), or the token itself", "N"},
    {"by", 0, POPT_ARG_STRING, &given.by, 0, "parts to show: component (default), head or source", "PARTS"},
    {"target", 0, POPT_ARG_STRING, &given.target, 0,
     "logit to split: difference (default with --wrong), centred (minus the mean over the vocabulary; default "
     "otherwise) or answer",
     "LOGIT"},
    POPT_TABLEEND};

enum { LISTED = 5 }; /* parts in "Largest parts" */
static const char *const parts[] = {"component", "head", "source", NULL};
static const char *const targets[] = {"difference", "answer", "centred", NULL};
static const char *const target_names[] = {"logit difference", "logit", "logit above the mean"};

/* ---- output ---- */

static json_t *part_json(const attribution *x)
{
    const mha_logit_attribution *a = x->a;
    json_t *numbers = json_array(), *heads = json_array(), *sources = json_array(), *biases = json_array(),
           *mlps = json_array();
    for (int64_t l = 0; l < a->layers; l++) {
        json_t *row = json_array(), *split = json_array(), *names = json_array();
        for (int64_t h = 0; h < attribution_heads(x, l); h++) {
            json_t *tokens = json_array();
            for (int64_t t = 0; t < a->tokens; t++)
                json_array_append_new(tokens, cli_real(attribution_source(x, l, h, t)));
            json_array_append_new(names, json_integer(mha_head_number(x->model, l, h)));
            json_array_append_new(row, cli_real(attribution_head(x, l, h)));
            json_array_append_new(split, tokens);
        }
        json_array_append_new(numbers, names);
        json_array_append_new(heads, row);
        json_array_append_new(sources, split);
        json_array_append_new(biases, cli_real(a->attn_bias[x->target * a->layers + l]));
        json_array_append_new(mlps, cli_real(a->mlps[x->target * a->layers + l]));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "embed", cli_real(a->embed[x->target]),
                     "pos_embed", cli_real(a->pos_embed[x->target]), "head_numbers", numbers, "heads", heads, "sources",
                     sources, "attn_bias", biases, "mlp", mlps, "norm_bias", cli_real(a->norm_bias[x->target]),
                     "logit_bias", cli_real(a->logit_bias[x->target]));
}

static int put_json(cli_session *s, const attribution *x)
{
    const bool wrong = x->o.wrong >= 0;
    json_t *ids = json_array();
    for (int64_t t = 0; t < x->prompt.count; t++)
        json_array_append_new(ids, json_integer(x->prompt.ids[t]));
    json_t *all =
        json_pack("{s:s, s:o, s:o, s:I, s:{s:I, s:o}, s:s, s:o, s:o, s:o, s:o}", "model", cli_shown(s->model_name),
                  "ids", ids, "tokens", circuit_tokens(&x->prompt), "position", (json_int_t)x->o.position, "answer",
                  "id", (json_int_t)x->o.answer, "token", circuit_token(&x->prompt, x->o.answer), "target",
                  targets[x->target], "total", cli_real(x->a->total[x->target]), "error", cli_real(x->a->error),
                  "scale", cli_real(x->a->scale), "parts", part_json(x));
    if (all && wrong)
        json_object_set_new(
            all, "wrong",
            json_pack("{s:I, s:o}", "id", (json_int_t)x->o.wrong, "token", circuit_token(&x->prompt, x->o.wrong)));
    return cli_put_json(s, all, false);
}

/* Returns what was measured, as lines of text for the page. */
static json_t *lines_of(const attribution *x)
{
    json_t *answer = circuit_token(&x->prompt, x->o.answer), *wrong = NULL, *lines = json_array();
    json_t *at = circuit_token(&x->prompt, x->prompt.ids[x->o.position]);
    if (x->o.wrong >= 0) wrong = circuit_token(&x->prompt, x->o.wrong);
    json_array_append_new(lines, json_sprintf("Answer \"%s\"%s%s%s after token %lld, \"%s\": %s %.4f",
                                              json_string_value(answer), wrong ? ", wrong answer \"" : "",
                                              wrong ? json_string_value(wrong) : "", wrong ? "\"" : "",
                                              (long long)x->o.position, json_string_value(at), target_names[x->target],
                                              x->a->total[x->target]));
    json_array_append_new(lines, json_sprintf("The parts add up to this logit within %.1e.", x->a->error));
    json_decref(answer);
    json_decref(wrong);
    json_decref(at);
    return lines;
}

/* Prints the largest parts, such as "head 1.3 +2.10". */
static int put_largest(const cli_session *s, const attribution *x)
{
    int64_t count;
    char text[LISTED * 48] = "";
    size_t used = 0;
    attribution_part *all = attribution_rank(x, true, &count);
    if (!all) return cli_error(s, CLI_FAILED, "out of memory");
    for (int64_t n = 0; n < count && n < LISTED; n++) {
        const long long layer = all[n].layer, head = mha_head_number(x->model, layer, all[n].head);
        char name[40];
        if (all[n].head < 0)
            snprintf(name, sizeof name, "mlp %lld", layer);
        else
            snprintf(name, sizeof name, "head %lld.%lld", layer, head);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %+.2f", n ? ", " : "", name, all[n].value);
    }
    fputc('\n', s->out);
    cli_put_prose(s, 0, 2, "Largest parts: %s", text);
    free(all);
    return CLI_DONE;
}

static int put_text(const cli_session *s, const attribution *x)
{
    size_t n;
    json_t *map = attribution_map(x, x->by), *lines = lines_of(x);
    const json_t *line;
    json_array_foreach(lines, n, line) cli_put_prose(s, 0, 0, "%s", cli_shown(json_string_value(line)));
    fputc('\n', s->out);
    if (map) circuit_map_print(s, map);
    const int code = map ? put_largest(s, x) : cli_error(s, CLI_FAILED, "out of memory");
    json_decref(map);
    json_decref(lines);
    return code;
}

static int put_csv(const cli_session *s, const attribution *x)
{
    json_t *map = attribution_map(x, x->by);
    if (map) circuit_map_csv(s->out, map);
    json_decref(map);
    return map ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory");
}

static int put_page(const cli_session *s, const attribution *x)
{
    json_t *maps = json_pack("[o, o, o]", attribution_map(x, BY_COMPONENT), attribution_map(x, BY_HEAD),
                             attribution_map(x, BY_SOURCE));
    return lens_page_write(s, "Direct logit attribution", lines_of(x), maps);
}

static int put_result(cli_session *s, const attribution *x)
{
    int code = s->options.out ? put_page(s, x) : CLI_DONE;
    if (code != CLI_DONE) return code;
    if (s->options.json) return put_json(s, x);
    if (s->options.csv) return put_csv(s, x);
    return s->options.out ? CLI_DONE : put_text(s, x);
}

/* ---- measurement ---- */

/* Parses an option whose value is one of `words`. */
static int read_word(const cli_session *s, const char *option, const char *value, const char *const *words, int *index)
{
    for (int i = 0; value && words[i]; i++)
        if (strcmp(value, words[i]) == 0) {
            *index = i;
            return CLI_DONE;
        }
    if (!value) return CLI_DONE;
    return cli_usage(s, "%s must be %s, %s or %s (got \"%s\")", option, words[0], words[1], words[2], cli_shown(value));
}

static int read_options(const cli_session *s, attribution *x)
{
    x->target = given.wrong ? MHA_LOGIT_DIFFERENCE : MHA_LOGIT_CENTRED;
    int code = read_word(s, "--by", given.by, parts, &x->by);
    if (code == CLI_DONE) code = read_word(s, "--target", given.target, targets, &x->target);
    if (code != CLI_DONE) return code;
    if (!given.answer) return cli_usage(s, "missing --answer TOKEN");
    if (x->target == MHA_LOGIT_DIFFERENCE && !given.wrong) return cli_usage(s, "--target difference requires --wrong");
    return page_file_check(s);
}

static int read_prompt(cli_session *s, attribution *x)
{
    int code = cli_sequence_read(s, x->model, &x->prompt);
    x->o = (mha_logit_attribution_options){.size = sizeof x->o, .position = x->prompt.count - 1, .wrong = -1};
    if (code == CLI_DONE) code = cli_sequence_position(s, &x->prompt, "--position", given.position, &x->o.position);
    if (code == CLI_DONE) code = cli_sequence_answer(s, x->model, &x->prompt, "--answer", given.answer, &x->o.answer);
    if (code == CLI_DONE && given.wrong)
        code = cli_sequence_answer(s, x->model, &x->prompt, "--wrong", given.wrong, &x->o.wrong);
    return code;
}

static int run(cli_session *s)
{
    attribution x = {.by = BY_COMPONENT};
    mha_error error = {0};
    mha_model *model = NULL;
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    int code = read_options(s, &x);
    if (code == CLI_DONE) code = cli_model_open(s, &bare, &model);
    x.model = model;
    if (code == CLI_DONE) code = read_prompt(s, &x);
    if (code == CLI_DONE &&
        mha_logit_attribution_measure(model, x.prompt.ids, x.prompt.count, &x.o, &x.a, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    if (code == CLI_DONE) code = cli_finite(s, x.prompt.where, "the logit of --answer", x.a->total[x.target]);
    if (code == CLI_DONE) code = put_result(s, &x);
    mha_logit_attribution_free(x.a);
    cli_sequence_free(&x.prompt);
    mha_model_free(model);
    return code;
}

const cli_command cli_attribute = {
    .name = "attribute",
    .summary = "split the logit of an answer by component, head or source token",
    .usage = "TEXT --answer TOKEN",
    .details =
        "Direct logit attribution: the last residual of a decoder is a sum of what embeddings, heads, biases and "
        "feed-forward parts write, and with the scale of the final norm fixed, so is the logit. The parts add up to "
        "the logit; the command prints the difference. Effects that a part has through later layers are in the "
        "parts of those layers. Post-norm models (BERT) are refused, since no exact sum exists.\n"
        "--by component prints the sums of each layer, --by head each head, and --by source the tokens from which "
        "the ten strongest heads read. -o FILE.html writes all three, and a name that ends in .png, .svg or .pdf a "
        "figure of them.\n"
        "--json prints {model, ids, tokens, position, answer: {id, token}, target, total, error, scale, parts: "
        "{embed, pos_embed, head_numbers, heads: [layers][heads], sources: [layers][heads][tokens], attn_bias, mlp: "
        "[layers], "
        "norm_bias, logit_bias}, wrong}; --csv prints one line per cell of the grid.",
    .shared = CLI_MODEL | CLI_FILE | CLI_IDS | CLI_OUT | CLI_JSON | CLI_CSV | CLI_DTYPE,
    .options = options,
    .examples = "mha attribute \" red cat key boat hat drum red cat key\" \\\n"
                "    --answer \" boat\" --wrong \" ring\"\n"
                "mha attribute \" red cat key boat hat drum red cat key\" \\\n"
                "    --answer \" boat\" --by head\n",
    .run = run,
};

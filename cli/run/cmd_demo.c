/* cmd_demo.c - `mha demo`: the first command to try. The built-in model continues unseen texts; the command then
 * describes the heads that copy, and ablates them. */
#include "commands.h"
#include "heads/heads_grid.h"
#include "input/input.h"
#include "input/tokens.h"
#include "output.h"
#include "report/report_page.h"
#include "run/demo_copy.h"
#include "run/demo_heads.h"
#include "word_wrap.h"
#include <stdlib.h>
#include <string.h>

/* Words that psychologists invented to study how children learn new words; the training texts do not contain these
 * words. */
#define ROW "wug dax blicket toma fep"
static const char *const once = "Repeat after me: " ROW ".", *const twice = "Repeat after me: " ROW ". " ROW ".";

static const char *const prompts[] = {
    "Repeat after me: " ROW ".",
    "One day Clara finds a green kite in the barn. \"Where is the kite?\" asks Tom. \"",
    "wug: 41, dax: 7, fep: 93. dax? 7. wug?",
    "Count from 27 to 33: 27 28",
};
enum { PROMPTS = sizeof prompts / sizeof *prompts, NEW_MAX = 24, INDENT = 2, HEADS_IN_WORDS = 3 };

static void title(const cli_session *s, int number, const char *text)
{
    fprintf(s->out, "\n%s%d. ", cli_bold(s), number);
    cli_put_prose(s, 3, 3, "%s", text);
    fprintf(s->out, "%s\n", cli_plain(s));
}

/* ---- continuations ---- */

/* Tokenizes a text. Returns an exit code. */
static int tokenize(const cli_session *s, const mha_model *model, const char *text, mha_encoding **tokens)
{
    mha_error error = {0};
    if (mha_tokenizer_encode(mha_model_tokenizer(model), text, strlen(text), NULL, 0, NULL, tokens, &error) != MHA_OK)
        return cli_refuse(s, &error);
    return CLI_DONE;
}

static int go_on(const cli_session *s, const mha_model *model, const char *text, json_t *continuations)
{
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    const mha_generate_options how = {.size = sizeof how, .max_new = NEW_MAX};
    mha_encoding *tokens = NULL;
    int32_t ids[NEW_MAX];
    int64_t length;
    char *more = NULL;
    mha_error error = {0};
    int code = tokenize(s, model, text, &tokens);
    if (code != CLI_DONE) return code;
    const mha_prompt prompt = {tokens->ids, tokens->count};
    if (mha_model_generate(model, &prompt, 1, &how, ids, &length, &error) != MHA_OK ||
        mha_tokenizer_decode(tokenizer, ids, length, 1, &more, NULL, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    if (code == CLI_DONE) {
        fprintf(s->out, "%*s%s", INDENT, "", cli_dim(s));
        cli_put_prose(s, INDENT, INDENT, "%s", text);
        fprintf(s->out, "%s%*s", cli_plain(s), INDENT + 2, "");
        cli_put_prose(s, INDENT + 2, INDENT + 4, "... %s", cli_shown(more + strspn(more, " ")));
        json_array_append_new(continuations, json_pack("{s:s, s:s}", "prompt", text, "text", more + strspn(more, " ")));
    }
    mha_tokenizer_text_free(tokenizer, more);
    mha_encoding_free(tokens);
    return code;
}

/* ---- output ---- */

static void show_model(const cli_session *s, const mha_model *model)
{
    const mha_model_info *info = mha_model_describe(model);
    static const char name[] = "The built-in model";
    fprintf(s->out, "%s%s%s", cli_bold(s), name, cli_plain(s));
    cli_put_prose(
        s, (int)strlen(name), 0,
        ": a decoder with %lld layers of %lld heads and %.2f million weights. mha trained it in minutes, on sentences "
        "and tasks written for this project. Its vocabulary is a few hundred words, and it has no knowledge of the "
        "world.",
        (long long)info->layers, (long long)info->heads, (double)info->parameters / 1e6);
}

/* Prints a command and its description, on separate lines if the terminal is too narrow. */
static void show_command(const cli_session *s, const char *command, const char *what)
{
    enum { COMMAND = 47 }; /* columns of a command */
    const int taken = (int)strlen(command) > COMMAND ? (int)strlen(command) : COMMAND;
    const bool same_line = INDENT + taken + 1 + (int)strlen(what) <= s->columns;
    fprintf(s->out, "%*s", INDENT, "");
    if (same_line) {
        fprintf(s->out, "%-*s %s%s%s\n", COMMAND, command, cli_dim(s), what, cli_plain(s));
        return;
    }
    cli_put_prose(s, INDENT, INDENT + 2, "%s", command);
    fprintf(s->out, "%*s%s", INDENT + 4, "", cli_dim(s));
    cli_put_prose(s, INDENT + 4, INDENT + 4, "%s", what);
    fputs(cli_plain(s), s->out);
}

static void show_next(const cli_session *s)
{
    static const struct {
        const char *command, *what;
    } next[] = {
        {"mha demo -o heads.html", "shows these heads on a page"},
        {"mha generate \"Anna has a red box.\"", "continues your own text"},
        {"mha heads \"Your own sentence.\"", "shows every head with all scores"},
        {"mha heads -m FOLDER \"Your own sentence.\"", "shows the heads of your own model"},
        {"mha --help", "lists all commands"},
    };
    fprintf(s->out, "\n%sNext%s ", cli_bold(s), cli_plain(s));
    cli_put_prose(s, 5, 0, "(from a checkout: ./run instead of mha)\n");
    for (size_t i = 0; i < sizeof next / sizeof *next; i++)
        show_command(s, next[i].command, next[i].what);
}

static int64_t count_heads(const mha_heads *heads)
{
    int64_t count = 0;
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        count += mha_heads_count(heads, l);
    return count;
}

static int show_heads(cli_session *s, const mha_model *model, const mha_heads *heads, demo_table *table)
{
    char line[96];
    title(s, 2, "The first text, as the tokens that the model reads");
    cli_put_tokens(s, mha_model_tokenizer(model), mha_heads_tokens(heads), INDENT);
    snprintf(line, sizeof line, "The %lld heads: label, and score in percent", (long long)count_heads(heads));
    title(s, 3, line);
    cli_put_grid(s, model, heads, INDENT);
    fputc('\n', s->out);
    cli_put_legend(s, heads, INDENT);
    title(s, 4, "What three of the heads do (LAYER.HEAD)");
    demo_heads_tell(s, model, heads, HEADS_IN_WORDS, INDENT);

    title(s, 5, "Probability of the correct token in the repeated words, with heads removed");
    mha_encoding *first = NULL;
    int code = tokenize(s, model, once, &first);
    if (code == CLI_DONE)
        code = demo_copy_measure(s, &(demo_copy){.model = model, .heads = heads, .again = first->count}, table);
    if (code == CLI_DONE) demo_table_put(s, table, INDENT);
    mha_encoding_free(first);
    return code;
}

/* Writes the page of -o: the heads measured on the repeated text, with the results that the terminal shows. Takes
 * ownership of `continuations`. */
static int save_page(cli_session *s, const mha_model *model, const mha_heads *heads, json_t *continuations,
                     const demo_table *table)
{
    report r = {.planned = 1,
                .demo = json_pack("{s:o, s:o}", "continuations", continuations, "ablation", demo_table_json(table))};
    const report_model part = {.name = "builtin", .model = model, .heads = heads};
    const bool whole = r.demo && report_add(&r, twice, &part, 1) && report_measured(&r, NULL, NULL, NULL);
    const int code = whole ? report_page_save(s, &r) : cli_error(s, CLI_FAILED, "out of memory for the page");
    report_free(&r);
    return code;
}

static int show(cli_session *s, const mha_model *model, const mha_heads *heads)
{
    demo_table table = {0};
    json_t *continuations = json_array();
    show_model(s, model);
    title(s, 1, "The model continues texts that it has never seen");
    int code = CLI_DONE;
    for (int i = 0; code == CLI_DONE && i < PROMPTS; i++)
        code = go_on(s, model, prompts[i], continuations);
    if (code == CLI_DONE) code = show_heads(s, model, heads, &table);
    if (code == CLI_DONE) show_next(s);
    if (code == CLI_DONE && s->options.out)
        code = save_page(s, model, heads, continuations, &table);
    else
        json_decref(continuations);
    demo_table_free(&table);
    return code;
}

static int run(cli_session *s)
{
    if (s->arg_count > 0) return cli_usage(s, "demo accepts no arguments; for your own text, run mha heads TEXT");
    mha_model *model = NULL;
    mha_heads *heads = NULL;
    mha_error error = {0};
    const mha_heads_options how = {.size = sizeof how, .keep_maps = 1};
    int code = s->options.out ? cli_check_out(s) : CLI_DONE;
    if (code == CLI_DONE) code = cli_model_open(s, NULL, &model);
    if (code == CLI_DONE && mha_heads_measure(model, &twice, 1, &how, &heads, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    if (code == CLI_DONE) code = show(s, model, heads);
    mha_heads_free(heads);
    mha_model_free(model);
    return code;
}

const cli_command cli_demo = {
    .name = "demo",
    .summary = "continue prompts with the built-in model and describe its heads",
    .usage = "",
    .details = "-o FILE.html also writes a page of all heads on the repeated text, like the page of mha report.",
    .shared = CLI_OUT,
    .examples = "mha demo\n"
                "mha demo -o demo.html\n",
    .run = run,
};

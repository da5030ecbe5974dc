/* cmd_tokenize.c - `mha tokenize`: prints the tokens and ids of texts. It requires tokenizer.json, but no weights. */
#include "commands.h"
#include "input/input.h"
#include "input/tokens.h"
#include "options.h"
#include "output.h"
#include "session.h"
#include <stdlib.h>
#include <string.h>

static struct {
    int no_special, decode;
    const char *max_tokens;
} given;

static const struct poptOption options[] = {
    {"no-special", 0, POPT_ARG_NONE, &given.no_special, 0, "do not add special tokens such as [CLS] and [SEP]", NULL},
    {"decode", 0, POPT_ARG_NONE, &given.decode, 0, "also show the text that the tokens decode to", NULL},
    {"max-tokens", 0, POPT_ARG_STRING, &given.max_tokens, 0,
     "truncate after N tokens, 0 = never (default: the model's maximum)", "N"},
    POPT_TABLEEND};

/* Limits of the model in the tokenizer's folder; zeros if the folder has no model or an unsupported model. */
typedef struct limits {
    int64_t tokens; /* maximum tokens per text; 0 = unlimited */
    int64_t rows;   /* number of embedding rows; 0 = unknown */
} limits;

static int find_limits(cli_session *s, limits *max)
{
    long long wanted = -1;
    int code = cli_whole(s, "--max-tokens", given.max_tokens, 0, INT32_MAX, &wanted);
    if (code != CLI_DONE) return code;
    mha_model *model;
    mha_error error = {0};
    const mha_model_options light = {.size = sizeof light, .no_weights = 1, .no_tokenizer = 1};
    mha_status status = mha_model_open(s->ctx, s->model, &light, &model, &error);
    *max = (limits){0};
    if (status == MHA_OK) *max = (limits){mha_model_describe(model)->max_positions, mha_model_describe(model)->vocab};
    mha_model_free(model);
    if (wanted >= 0) max->tokens = wanted;
    bool missing = status == MHA_ERR_IO || status == MHA_ERR_UNSUPPORTED;
    if (status != MHA_OK && !missing && wanted < 0) return cli_refuse(s, &error);
    if (missing && s->options.verbose)
        cli_say(s, "using no limit on the number of tokens, because the model was not opened: %s", error.message);
    return CLI_DONE;
}

/* ---- output ---- */

static json_t *encoding_json(const mha_tokenizer *tokenizer, const mha_encoding *e, const char *decoded, size_t bytes)
{
    json_t *ids = json_array(), *tokens = json_array(), *offsets = json_array();
    for (int64_t i = 0; i < e->count; i++) {
        json_array_append_new(ids, json_integer(e->ids[i]));
        json_array_append_new(tokens, json_string(cli_token_text(tokenizer, e->ids[i])));
        json_array_append_new(offsets, json_pack("[I, I]", (json_int_t)e->begin[i], (json_int_t)e->end[i]));
    }
    json_t *json = json_pack("{s:o, s:o, s:o, s:I}", "ids", ids, "tokens", tokens, "offsets", offsets, "truncated",
                             (json_int_t)e->truncated);
    if (decoded) json_object_set_new(json, "decoded", json_stringn(decoded, bytes));
    return json;
}

static void print_encoding(const cli_session *s, const mha_tokenizer *tokenizer, const mha_encoding *e,
                           const char *decoded, size_t bytes)
{
    cli_put_tokens(s, tokenizer, e, 0);
    fprintf(s->out, "%s%lld tokens", cli_dim(s), (long long)e->count);
    if (e->truncated > 0) fprintf(s->out, ", %lld more were truncated", (long long)e->truncated);
    fprintf(s->out, "%s\n", cli_plain(s));
    if (!decoded) return;
    cli_put_shown(s->out, decoded, bytes);
    fputc('\n', s->out);
}

/* Decodes the ids, including special tokens; the text is NULL without --decode. */
static int decode(cli_session *s, const mha_tokenizer *tokenizer, const mha_encoding *e, char **text, size_t *bytes)
{
    mha_error error = {0};
    *text = NULL;
    if (!given.decode || mha_tokenizer_decode(tokenizer, e->ids, e->count, 0, text, bytes, &error) == MHA_OK)
        return CLI_DONE;
    return cli_refuse(s, &error);
}

static int put_one(cli_session *s, const mha_tokenizer *tokenizer, const mha_encoding *e, int64_t rows)
{
    char *decoded = NULL;
    size_t bytes = 0;
    int code = cli_check_rows(s, tokenizer, e, rows);
    if (code == CLI_DONE) code = decode(s, tokenizer, e, &decoded, &bytes);
    if (code == CLI_DONE && s->options.json)
        code = cli_put_json(s, encoding_json(tokenizer, e, decoded, bytes), false);
    else if (code == CLI_DONE)
        print_encoding(s, tokenizer, e, decoded, bytes);
    mha_tokenizer_text_free(tokenizer, decoded);
    return code;
}

static int encode_all(cli_session *s, const mha_tokenizer *tokenizer, const cli_texts *texts, const limits *max)
{
    const mha_encode_options how = {.size = sizeof how, .no_special = given.no_special, .max_tokens = max->tokens};
    for (int64_t i = 0; i < texts->count; i++) {
        mha_encoding *e;
        mha_error error = {0};
        if (cli_stopped()) return cli_stopped();
        if (mha_tokenizer_encode(tokenizer, texts->text[i], texts->bytes[i], NULL, 0, &how, &e, &error) != MHA_OK)
            return cli_refuse(s, &error);
        int code = put_one(s, tokenizer, e, max->rows);
        mha_encoding_free(e);
        if (code != CLI_DONE) return code;
    }
    return CLI_DONE;
}

static int run(cli_session *s)
{
    cli_texts texts;
    int code = cli_texts_read(s, true, &texts);
    if (code != CLI_DONE) return code;
    mha_tokenizer *tokenizer = NULL;
    mha_error error = {0};
    limits max = {0};
    code = cli_model_find(s, s->options.model);
    if (code == CLI_DONE && mha_tokenizer_open(s->ctx, s->model, &tokenizer, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    if (code == CLI_DONE) code = find_limits(s, &max);
    if (code == CLI_DONE) code = encode_all(s, tokenizer, &texts, &max);
    mha_tokenizer_free(tokenizer);
    cli_texts_free(&texts);
    return code;
}

const cli_command cli_tokenize = {
    .name = "tokenize",
    .summary = "split texts into the tokens of a model",
    .usage = "TEXT... | -f FILE",
    .details =
        "--json prints one line per text: {ids, tokens, offsets, truncated}, and decoded with --decode. The offset of "
        "a token is the pair of byte positions [begin, end) in the text, [0, 0] for special tokens. A text of -f may "
        "contain NUL, which the tokenizer treats like any other character; commands that run a model reject NUL.",
    .shared = CLI_MODEL | CLI_FILE | CLI_JSON,
    .options = options,
    .examples = "mha tokenize \"Hello, world!\"\n"
                "mha tokenize -m minilm --json -f texts.txt\n"
                "mha tokenize --documents whole --json <notes.txt\n",
    .run = run,
};

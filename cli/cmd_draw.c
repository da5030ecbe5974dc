/* cmd_draw.c - `mha draw`: the map of one head as PNG, SVG or PDF. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "figure.h"
#include "heads_of_text.h"
#include "options.h"
#include "output.h"
#include "tokens.h"

static char *head_option;

static const struct poptOption options[] = {
    {"head", '\0', POPT_ARG_STRING, &head_option, 0, "the head to draw, layer and number from 0", "L.H"},
    POPT_TABLEEND,
};

static const char **token_texts(const heads_of_text *h)
{
    const mha_encoding *tokens = mha_heads_tokens(h->heads);
    const char **texts = malloc((size_t)tokens->count * sizeof *texts);
    for (int64_t i = 0; texts && i < tokens->count; i++)
        texts[i] = cli_token_text(mha_model_tokenizer(h->model), tokens->ids[i]);
    return texts;
}

static int draw(cli_session *s, const heads_of_text *h, int64_t layer, int64_t head)
{
    char title[160];
    snprintf(title, sizeof title, "%.90s, layer %lld head %lld: %s", cli_shown(s->model_name), (long long)layer,
             (long long)head, mha_head_label_key(mha_heads_label(h->heads, layer, head)));
    const char **tokens = token_texts(h);
    figure f = {.title = title,
                .n = mha_heads_tokens(h->heads)->count,
                .tokens = tokens,
                .map = mha_heads_map(h->heads, layer, head)};
    unsigned char *data = NULL;
    size_t bytes = 0;
    const char *wrong = tokens ? figure_draw(&f, s->options.out, &data, &bytes) : "out of memory";
    mha_error err = {.status = MHA_ERR_MEMORY};
    if (wrong) snprintf(err.message, sizeof err.message, "figure of %lld tokens: %s", (long long)f.n, wrong);
    int code = wrong ? cli_fail(s, &err) : cli_write_file(s, data, bytes);
    if (code == CLI_DONE)
        cli_say(s, "%s: %.1f KB; layer %lld head %lld", cli_shown(s->options.out), (double)bytes / 1e3,
                (long long)layer, (long long)head);
    free(data);
    free(tokens);
    return code;
}

static int run(cli_session *s)
{
    mha_model_head at = {0};
    if (!s->options.out) return cli_usage(s, "-o FILE is missing");
    if (!figure_knows(s->options.out))
        return cli_usage(s, "-o %s: the name must end in .png, .svg or .pdf", cli_shown(s->options.out));
    if (!head_option) return cli_usage(s, "--head L.H is missing");
    const char *end = cli_head(head_option, &at);
    if (!end || *end) return cli_usage(s, "--head \"%s\": want LAYER.HEAD, for example 0.2", cli_shown(head_option));
    heads_of_text h;
    int code = heads_of_text_measure(s, &h);
    if (code == CLI_DONE && at.layer >= mha_heads_layers(h.heads))
        code = cli_usage(s, "--head \"%s\": the model has %lld layers", cli_shown(head_option),
                         (long long)mha_heads_layers(h.heads));
    else if (code == CLI_DONE && at.head >= mha_heads_count(h.heads, at.layer))
        code = cli_usage(s, "--head \"%s\": layer %lld has %lld heads", cli_shown(head_option), (long long)at.layer,
                         (long long)mha_heads_count(h.heads, at.layer));
    else if (code == CLI_DONE)
        code = draw(s, &h, at.layer, at.head);
    heads_of_text_free(&h);
    return code;
}

const cli_command cli_draw = {
    .name = "draw",
    .summary = "draw the map of one head as PNG, SVG or PDF",
    .usage = "TEXT",
    .details = "A row of the map is a query token, a column the token it looks at; colours are on a square-root scale.",
    .shared = CLI_MODEL | CLI_FILE | CLI_OUT,
    .options = options,
    .run = run,
};

/* cmd_live.c - `mha live`: writes a page that runs a model in the browser, with heads that can be switched off. */
#include "commands.h"
#include "input/input.h"
#include "live/live_page.h"
#include "output.h"
#include "page/page_file.h"
#include <stdlib.h>
#include <string.h>

static struct {
    char *state;
} given;

static const struct poptOption options[] = {
    {"state", '\0', POPT_ARG_STRING, &given.state, 0, "open with a state: the address of a page, from its # on",
     "STATE"},
    POPT_TABLEEND,
};

/* A sentence that the built-in model continues with its induction heads, which makes their effect visible. */
static const char default_text[] = "One day Clara found a red key in the garden. She put the red";

static int read_text(cli_session *s, char **text)
{
    cli_texts texts = {0};
    *text = NULL;
    if (s->arg_count == 0 && !s->options.file) {
        *text = strdup(default_text);
        return *text ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory");
    }
    int code = cli_texts_read(s, false, &texts);
    if (code != CLI_DONE) return code;
    if (texts.count != 1)
        code = cli_usage(s, "at most one text is required (got %lld)", (long long)texts.count);
    else if (!(*text = strdup(texts.text[0])))
        code = cli_error(s, CLI_FAILED, "out of memory");
    cli_texts_free(&texts);
    return code;
}

static int run(cli_session *s)
{
    char *text = NULL;
    json_t *data = NULL;
    if (!s->options.out) return cli_usage(s, "missing -o FILE.html");
    if (given.state && (s->arg_count > 0 || s->options.file))
        return cli_usage(s, "--state contains the text, so TEXT and -f must not be given");
    int code = cli_check_out(s);
    if (code == CLI_DONE && given.state) code = live_state_check(s, given.state);
    if (code == CLI_DONE) code = live_check_model(s);
    if (code == CLI_DONE) code = read_text(s, &text);
    if (code == CLI_DONE) code = live_page_data(s, text, &data);
    if (code == CLI_DONE && given.state)
        json_object_set_new(data, "state", json_string(live_state_fragment(given.state)));
    if (code == CLI_DONE) code = page_file_save(s, live_page_before, data, live_page_after);
    free(text);
    return code;
}

const cli_command cli_live = {
    .name = "live",
    .summary = "write an HTML page that runs a model and switches its heads",
    .usage = "[TEXT]",
    .details =
        "The page contains the model and the library as a WebAssembly module. It needs no network, no server and "
        "no other file, and sends nothing. Type a text: the page shows the tokens, the maps of all heads, the "
        "predicted next token, and the effect of every head: by how much the prediction changes without it. "
        "Heads can be switched off, scaled or replaced by their mean, attention edges removed, and activations of a "
        "second text patched into the run; another checkpoint folder can be dropped onto the page. mha report --live "
        "writes the page into a report. --state STATE writes a page that opens with the text, changes and view in the "
        "address of another page of the same model; parts that the model does not have are ignored. The files of the "
        "model must have at most 134217728 bytes in total.",
    .shared = CLI_MODEL | CLI_FILE | CLI_OUT,
    .options = options,
    .examples = "mha live -o live.html\n"
                "mha live \"Count from 2 to 6: 2 3\" -o count.html\n"
                "mha live --state \"#text=Count%20from%202&gates=0.7:0&head=0.7\" -o off.html\n",
    .run = run,
};

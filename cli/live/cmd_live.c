/* cmd_live.c - `mha live`: writes a page that runs a model in the browser, with heads that can be switched off. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "input/input.h"
#include "live/live_page.h"
#include "output.h"
#include "page/page_data.h"
#include "page/page_file.h"

static const struct poptOption options[] = {POPT_TABLEEND};

/* A sentence that the built-in model continues with its induction heads, which makes their effect visible. */
static const char default_text[] = "One day Clara found a red key in the garden. She put the red";

/* Opens the model, so that one that the page would refuse is refused here, and checks that the page can show it. */
static int check_model(cli_session *s)
{
    mha_model *model = NULL;
    const mha_model_options quick = {.size = sizeof quick, .no_weights = 1};
    int code = cli_model_open(s, &quick, &model);
    if (code != CLI_DONE) return code;
    if (mha_model_describe(model)->encoder_decoder)
        code = cli_error(s, CLI_REFUSED, "the model must be an encoder or a decoder (got an encoder-decoder)");
    mha_model_free(model);
    return code;
}

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
    json_t *files = NULL, *module = NULL;
    if (!s->options.out) return cli_usage(s, "missing -o FILE.html");
    int code = cli_check_out(s);
    if (code == CLI_DONE) code = check_model(s);
    if (code == CLI_DONE) code = read_text(s, &text);
    if (code == CLI_DONE) code = live_module(s, &module);
    if (code == CLI_DONE) code = live_model_files(s, &files);
    if (code == CLI_DONE)
        code = page_file_save(s, live_page_before,
                              json_pack("{s:s, s:s, s:s, s:O, s:O, s:o}", "mha", mha_version(), "model", s->model_name,
                                        "text", text, "module", module, "files", files, "ramp", page_color_ramp()),
                              live_page_after);
    json_decref(files);
    json_decref(module);
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
        "Heads can be switched off, scaled or replaced by their mean, and another checkpoint folder can be "
        "dropped onto the page. The files of the model must have at most 134217728 bytes in total.",
    .shared = CLI_MODEL | CLI_FILE | CLI_OUT,
    .options = options,
    .examples = "mha live -o live.html\nmha live \"Count from 2 to 6: 2 3\" -o count.html\n",
    .run = run,
};

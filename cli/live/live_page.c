/* live_page.c - the data of the page of `mha live`. */
#include "live/live_page.h"

#include "input/input.h"
#include "output.h"
#include "page/page_data.h"
#include <sys/stat.h>

/* Rejects a GGUF file, the only file that cli_model_open accepts: the page contains the files of a folder. */
static int check_folder(const cli_session *s)
{
    struct stat st;
    if (stat(s->model, &st) != 0 || S_ISDIR(st.st_mode)) return CLI_DONE;
    return cli_error(
        s, CLI_REFUSED,
        "%s: the model of a live page must be a checkpoint folder (got a GGUF file): mha convert writes one",
        cli_shown(s->model_name));
}

int live_check_model(cli_session *s)
{
    mha_model *model = NULL;
    const mha_model_options quick = {.size = sizeof quick, .no_weights = 1};
    int code = cli_model_open(s, &quick, &model);
    if (code != CLI_DONE) return code;
    if (mha_model_describe(model)->encoder_decoder || mha_model_describe(model)->image_channels)
        code = cli_error(s, CLI_REFUSED, "the model of a live page must be an encoder or a decoder of texts (got %s)",
                         mha_model_describe(model)->family);
    mha_model_free(model);
    return code == CLI_DONE ? check_folder(s) : code;
}

int live_page_data(const cli_session *s, const char *text, json_t **data)
{
    json_t *files = NULL, *module = NULL;
    *data = NULL;
    int code = live_module(s, &module);
    if (code == CLI_DONE) code = live_model_files(s, &files);
    if (code == CLI_DONE)
        *data = json_pack("{s:s, s:s, s:s, s:O, s:O, s:o}", "mha", mha_version(), "model", cli_shown(s->model_name),
                          "text", text, "module", module, "files", files, "ramp", page_color_ramp());
    json_decref(files);
    json_decref(module);
    return code;
}

/* open_model.c - opens -m MODEL: a folder, "minilm" or "builtin". */
#include "input/input.h"
#include "input/model_folder.h"
#include "input/source_target.h"
#include "model_name.h"
#include "options.h"
#include "output.h"
#include "session.h"
#include <limits.h>
#include <string.h>

static char folder[PATH_MAX]; /* the model folder of this run */

static int find(cli_session *session, const char *name)
{
    session->model = folder;
    if (!name) name = "builtin";
    session->model_name = name;
    if (strcmp(name, "minilm") == 0) {
        if (cli_find_minilm(folder)) return CLI_DONE;
        return cli_error(session, CLI_REFUSED, "MiniLM is not on this machine: run ./run fetch minilm");
    }
    if (strcmp(name, "builtin") == 0) {
        if (cli_find_builtin(folder)) return CLI_DONE;
        return cli_error(session, CLI_FAILED, "the folder share/mha/builtin is missing from the installation");
    }
    session->model = name;
    return model_folder_check(session, name);
}

int cli_model_find(cli_session *session, const char *name)
{
    const int code = find(session, name);
    if (code == CLI_DONE) cli_signals_reading(session->model);
    return code;
}

int cli_model_open(cli_session *session, const mha_model_options *options, mha_model **model)
{
    return cli_model_open_named(session, session->options.model, options, model);
}

int cli_model_open_named(cli_session *session, const char *name, const mha_model_options *options, mha_model **model)
{
    *model = NULL;
    int code = cli_model_find(session, name);
    if (code != CLI_DONE) return code;
    mha_error error = {0};
    mha_model_options all = options ? *options : (mha_model_options){.size = sizeof all};
    all.dtype = cli_dtype(session->options.dtype);
    all.no_map = session->options.no_map;
    code = model_folder_check_files(session, session->model, !all.no_weights);
    if (code != CLI_DONE) return code;
    const bool mute = (session->command->shared & CLI_IDS) && model_folder_lacks_tokenizer(session->model);
    const bool needed = mute && !session->options.ids && !all.no_tokenizer; /* unless the model reads images */
    if (mute) all.no_tokenizer = 1;
    const cli_shared_texts *shared = session->shared;
    const mha_status status = shared ? shared->open(shared->user, session->ctx, session->model, &all, model, &error)
                                     : mha_model_open(session->ctx, session->model, &all, model, &error);
    if (status != MHA_OK) return cli_refuse(session, &error);
    if (!needed || mha_model_vision(*model)) return CLI_DONE;
    mha_model_free(*model);
    *model = NULL;
    return cli_error(session, CLI_REFUSED, CLI_NO_TOKENIZER, cli_shown(session->model));
}

int cli_model_check_text(const cli_session *session, const mha_model *model)
{
    if (!mha_model_describe(cli_encoder_of(model))->feature_bins) return CLI_DONE;
    return cli_error(session, CLI_REFUSED, "%s must read text (got %s, which reads audio: use mha transcribe)",
                     cli_shown(session->model_name), mha_model_describe(model)->family);
}

/* open_model.c - what -m MODEL means: a folder, "minilm" or "builtin". */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input/input.h"
#include "input/model_folder.h"
#include "options.h"
#include "output.h"
#include "session.h"

static char folder[PATH_MAX]; /* of the model of this run */

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* ${XDG_CACHE_HOME:-$HOME/.cache}/mha/minilm, where `./run fetch minilm` puts it. */
static bool find_minilm(char *path)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && *cache)
        n = snprintf(path, PATH_MAX, "%s/mha/minilm", cache);
    else if (home && *home)
        n = snprintf(path, PATH_MAX, "%s/.cache/mha/minilm", home);
    return n > 0 && n < PATH_MAX && is_folder(path);
}

/* PREFIX/share/mha/builtin for the program PREFIX/bin/mha, in a build folder as after installation. */
static bool find_builtin(char *path)
{
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    for (int up = 0; n > 0 && up < 2; up++) {
        while (n > 0 && program[n - 1] != '/')
            n--;
        if (n > 0) n--;
    }
    if (n > 0) {
        int length = snprintf(path, PATH_MAX, "%.*s/share/mha/builtin", (int)n, program);
        if (length < PATH_MAX && is_folder(path)) return true;
    }
    return snprintf(path, PATH_MAX, "%s/builtin", MHA_DATA_DIR) < PATH_MAX && is_folder(path);
}

const char *cli_model_folder(const char *name, char path[PATH_MAX])
{
    const bool named = strcmp(name, "minilm") == 0    ? find_minilm(path)
                       : strcmp(name, "builtin") == 0 ? find_builtin(path)
                                                      : false;
    return named ? path : name;
}

static int find(cli_session *session, const char *name)
{
    session->model = folder;
    if (!name) name = "builtin";
    session->model_name = name;
    if (strcmp(name, "minilm") == 0) {
        if (find_minilm(folder)) return CLI_DONE;
        return cli_error(session, CLI_REFUSED, "MiniLM is not on this machine: run ./run fetch minilm");
    }
    if (strcmp(name, "builtin") == 0) {
        if (find_builtin(folder)) return CLI_DONE;
        return cli_error(session, CLI_FAILED, "the folder share/mha/builtin is not beside the program");
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

static bool has_file(const char *path, const char *name)
{
    char file[PATH_MAX];
    return snprintf(file, sizeof file, "%s/%s", path, name) < PATH_MAX && access(file, F_OK) == 0;
}

/* Where texts are ids, a folder without tokenizer.json will do. */
static bool lacks_tokenizer(const char *path)
{
    return has_file(path, "config.json") && !has_file(path, "tokenizer.json");
}

int cli_model_open(cli_session *session, const mha_model_options *options, mha_model **model)
{
    return cli_model_open_named(session, session->options.model, options, model);
}

/* The router of --router, or the model's own. */
static int set_router(cli_session *session, mha_model *model)
{
    mha_error error = {0};
    const int64_t heads = session->options.heads_per_sequence;
    if (mha_router_open(model, session->options.router, NULL, &session->router, &error) != MHA_OK)
        return cli_refuse(session, &error);
    if (mha_model_route(model, session->router, heads, &error) == MHA_OK) return CLI_DONE;
    return error.status == MHA_ERR_ARG ? cli_usage(session, "--heads-per-sequence: %s", error.message)
                                       : cli_refuse(session, &error);
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
    const bool mute = (session->command->shared & CLI_IDS) && lacks_tokenizer(session->model);
    if (mute && session->options.ids) all.no_tokenizer = 1;
    if (mute && !all.no_tokenizer)
        return cli_error(session, CLI_REFUSED,
                         "%s: no tokenizer.json to read texts with; --ids takes token ids instead",
                         cli_shown(session->model));
    if (mha_model_open(session->ctx, session->model, &all, model, &error) != MHA_OK) return cli_refuse(session, &error);
    return session->options.heads_per_sequence && !all.no_weights ? set_router(session, *model) : CLI_DONE;
}

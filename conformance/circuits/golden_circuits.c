/* golden_circuits.c - checks recorded measures of circuits: opens the model of each entry and runs the parts. */
#include "conformance/circuits/golden_circuits.h"

#include "input/input.h"
#include "model_name.h"
#include "output.h"
#include "session.h"
#include <string.h>
#include <unistd.h>

static bool begins_with_word(const char *words, const char *name)
{
    for (const char *at = words; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        if (strncmp(at, name, length) == 0) return true;
        at += length;
    }
    return false;
}

/* Reports the tensors of a part that this build does not compute. */
static void skip(circuits_file *f, const circuits_part *part)
{
    const char *name;
    json_t *tensor;
    json_object_foreach((json_t *)f->listed, name, tensor)
    {
        if (!begins_with_word(part->prefixes, name)) continue;
        verify_skip(f->log, name);
        if (json_object_set_new(f->seen, name, json_true()) != 0) f->log->no_memory = true;
    }
}

static int check_parts(circuits_file *f, bool weights)
{
    for (const circuits_part *part = circuits_parts; part->prefixes && circuits_ok(f); part++) {
        if (cli_signal()) return 128 + cli_signal();
        if (part->weights != weights) continue;
        if (part->check)
            part->check(f);
        else
            skip(f, part);
    }
    return CLI_DONE;
}

/* Finds the folder of a model: below -m or, for "builtin", the model of the program if -m does not have it. */
static bool find_model(const circuits_file *f, const char *name, char path[PATH_MAX])
{
    if (verify_path(f->session->options.model, &f->entry, name, path, PATH_MAX) != MHA_OK) return false;
    if (strcmp(name, "builtin") != 0 || access(path, F_OK) == 0 || cli_find_builtin(path)) return true;
    verify_fault(&f->entry, "the folder share/mha/builtin is missing from the installation");
    return false;
}

static int check_entry(circuits_file *f, const char *folder, const json_t *index, const char *model_name, bool weights)
{
    char path[PATH_MAX];
    mha_model *model = NULL;
    mha_file *file = NULL;
    int code = CLI_DONE;
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    if (circuits_ok(f) && find_model(f, model_name, path) &&
        mha_model_open(f->session->ctx, path, &o, &model, f->entry.error) == MHA_OK) {
        f->model = model;
        f->info = mha_model_describe(model);
        if (circuits_open(f, folder, index, &file)) code = check_parts(f, weights);
        circuits_close(f, file);
    }
    mha_model_free(model);
    return code == CLI_DONE && !circuits_ok(f) ? cli_refuse(f->session, f->entry.error) : code;
}

static int check_all(cli_session *session, const char *folder, const json_t *index, bool weights, verify_log *log)
{
    const char *name;
    json_t *object;
    int code = CLI_DONE;
    json_object_foreach(json_object_get(index, weights ? "weights" : "cases"), name, object)
    {
        mha_error error = {0};
        circuits_file f = {.session = session, .log = log, .entry = {object, name, &error}};
        if (code == CLI_DONE)
            code = check_entry(&f, folder, index, weights ? name : verify_text(&f.entry, "model"), weights);
    }
    return code;
}

int verify_circuits(cli_session *session, const char *folder, const json_t *index, verify_log *log)
{
    if (!session->options.model) return cli_usage(session, "these results require -m FOLDER_OF_MODELS");
    int code = check_all(session, folder, index, false, log);
    return code == CLI_DONE ? check_all(session, folder, index, true, log) : code;
}

/* model_folder.c - see model_folder.h. */
#include "input/model_folder.h"

#include "output.h"
#include "suggest.h"
#include <dirent.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RULE                                                                                                          \
    "a model must be a folder with config.json, tokenizer.json and model.safetensors, or a GGUF file, or minilm, or " \
    "builtin"

/* Logs where to get checkpoint folders; `name` is the name of a model on the Hugging Face hub, or NULL. */
static int advise(const cli_session *s, const char *name)
{
    const char *hub = name ? name : "openai-community/gpt2";
    cli_say(s, "checkpoint folders come from huggingface.co, for example: hf download %s --local-dir %s",
            cli_shown(hub), cli_shown(strchr(hub, '/') + 1));
    return CLI_REFUSED;
}

/* Returns true if `name` has the form "organization/name" of a model on the Hugging Face hub and `organization` is not
 * an existing path. */
static bool of_hub(const char *name)
{
    char folder[PATH_MAX];
    const char *slash = strchr(name, '/');
    if (!slash || slash == name || !slash[1] || strchr(slash + 1, '/') || *name == '.' || *name == '~') return false;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - name), name);
    return access(folder, F_OK) != 0;
}

static int refuse_missing(const cli_session *s, const char *name)
{
    char meant[SUGGEST_TEXT];
    suggestion like = suggest_for(name);
    suggest_offer(&like, "minilm");
    suggest_offer(&like, "builtin");
    cli_error(s, CLI_REFUSED, "%s: " RULE " (got a path that does not exist)%s", cli_shown(name),
              suggest_text(&like, "", meant));
    return advise(s, of_hub(name) ? name : NULL);
}

/* Accepts a GGUF file as -m, and rejects any other file. The library's message names the kind of file. */
static int check_file(const cli_session *s, const char *name)
{
    mha_file *file = NULL;
    mha_error error = {0};
    const mha_status status = mha_checkpoint_open(s->ctx, name, NULL, &file, &error);
    if (status == MHA_OK && strcmp(mha_file_format(file), "gguf") == 0) {
        mha_file_free(file);
        return CLI_DONE;
    }
    if (status == MHA_OK)
        cli_error(s, CLI_REFUSED, "%s: " RULE " (got a tensor file: give the folder that contains it)",
                  cli_shown(name));
    else
        cli_error(s, CLI_REFUSED, "%s; " RULE, error.message);
    mha_file_free(file);
    return advise(s, NULL);
}

int model_folder_check(const cli_session *s, const char *name)
{
    struct stat st;
    if (!*name) return CLI_DONE; /* the library reports an empty name */
    if (stat(name, &st) != 0) return refuse_missing(s, name);
    return S_ISDIR(st.st_mode) ? CLI_DONE : check_file(s, name);
}

/* ---- contents of a folder ---- */

static bool has(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_MAX && access(path, F_OK) == 0;
}

/* Finds the alphabetically first file with weights in an unsupported format. */
static bool find_other_weights(const char *folder, char found[NAME_MAX + 1])
{
    static const char *const ends[] = {".gguf", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx"};
    DIR *entries = opendir(folder);
    *found = '\0';
    for (struct dirent *e = entries ? readdir(entries) : NULL; e; e = readdir(entries))
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            if (cli_ends(e->d_name, ends[i]) && (!*found || strcmp(e->d_name, found) < 0))
                snprintf(found, NAME_MAX + 1, "%s", e->d_name);
    if (entries) closedir(entries);
    return *found;
}

int model_folder_check_files(const cli_session *s, const char *folder, bool weights)
{
    char other[NAME_MAX + 1];
    const char *name = cli_shown(folder);
    const bool config = has(folder, "config.json");
    const bool tensors = has(folder, "model.safetensors") || has(folder, "model.safetensors.index.json");
    struct stat st;
    if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode)) return CLI_DONE; /* a GGUF file (model_folder_check) */
    if (!*folder || (config && (tensors || !weights))) return CLI_DONE;
    if (!config && has(folder, "snapshots"))
        return cli_error(s, CLI_REFUSED,
                         "%s: " RULE " (got a folder of the Hugging Face cache: give a subfolder of %s/snapshots)",
                         name, name);
    if (find_other_weights(folder, other))
        return cli_error(s, CLI_REFUSED,
                         "%s: weights must be safetensors (got %s); save_pretrained of transformers writes this format",
                         name, cli_shown(other));
    if (config) return CLI_DONE; /* the library reports the missing file */
    cli_error(s, CLI_REFUSED, "%s: " RULE " (got a folder without config.json)", name);
    return advise(s, NULL);
}

bool model_folder_lacks_tokenizer(const char *folder)
{
    return has(folder, "config.json") && !has(folder, "tokenizer.json");
}

/* live_files.c - reads the files that the page of `mha live` contains: those of the model, and the module. */
#include "input/input.h"
#include "live/live_page.h"
#include "model_name.h"
#include "output.h"
#include "page/page_gzip.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define INDEX "model.safetensors.index.json"

/* Reads a file to its end, or until it has more than `max` bytes. Returns 0 or an errno. */
static int read_stream(FILE *file, size_t max, unsigned char **data, size_t *bytes)
{
    size_t room = 0;
    while (*bytes <= max && !feof(file)) {
        if (*bytes == room) {
            unsigned char *more = realloc(*data, room = room ? 2 * room : 1 << 20);
            if (!more) return ENOMEM;
            *data = more;
        }
        *bytes += fread(*data + *bytes, 1, room - *bytes, file);
        if (ferror(file)) return errno;
    }
    return 0;
}

/* Reads a whole file of at most LIVE_BYTES_MAX - *used bytes, and adds its size to *used. */
static int read_file(const cli_session *s, const char *path, size_t *used, unsigned char **data, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    *data = NULL;
    *bytes = 0;
    if (!file) return cli_error(s, CLI_REFUSED, "%s: cannot open: %s", cli_shown(path), strerror(errno));
    const size_t max = LIVE_BYTES_MAX - *used;
    const int failed = read_stream(file, max, data, bytes);
    fclose(file);
    if (failed) return cli_error(s, CLI_REFUSED, "%s: cannot read: %s", cli_shown(path), strerror(failed));
    if (*bytes > max)
        return cli_error(s, CLI_REFUSED,
                         "the files of the model must have at most %d bytes (exceeded by %s): write the page of a "
                         "smaller model, and drop the folder of this model onto it",
                         LIVE_BYTES_MAX, cli_shown(path));
    *used += *bytes;
    return CLI_DONE;
}

/* Reads FOLDER/NAME, compressed. */
static int pack_file(const cli_session *s, const char *name, size_t *used, json_t **item)
{
    char path[PATH_MAX];
    unsigned char *data = NULL;
    size_t bytes = 0;
    if (snprintf(path, sizeof path, "%s/%s", s->model, name) >= (int)sizeof path)
        return cli_error(s, CLI_REFUSED, "%s: the name of the folder is too long", cli_shown(name));
    int code = read_file(s, path, used, &data, &bytes);
    if (code == CLI_DONE && !(*item = page_gzip(data, bytes, 0)))
        code = cli_error(s, CLI_FAILED, "out of memory for %s", cli_shown(path));
    free(data);
    return code;
}

static int add_weights(const cli_session *s, const char *name, size_t *used, json_t *list)
{
    json_t *data = NULL;
    const int code = pack_file(s, name, used, &data);
    if (code == CLI_DONE) json_array_append_new(list, json_pack("{s:s, s:o}", "name", name, "data", data));
    return code;
}

/* Adds the files that the index names, each once. mha_model_open has checked the index. */
static int add_shards(const cli_session *s, const char *index, size_t *used, json_t *list)
{
    json_t *root = NULL, *seen = json_object();
    int code = cli_json_read(s, index, &root);
    const char *tensor;
    json_t *file;
    json_object_foreach(json_object_get(root, "weight_map"), tensor, file)
    {
        const char *name = json_string_value(file);
        if (code != CLI_DONE || !name || json_object_get(seen, name)) continue;
        json_object_set_new(seen, name, json_true());
        code = add_weights(s, name, used, list);
    }
    json_decref(seen);
    json_decref(root);
    return code;
}

int live_model_files(const cli_session *s, json_t **files)
{
    char index[PATH_MAX];
    size_t used = 0;
    json_t *config = NULL, *tokenizer = NULL, *weights = json_array();
    const int length = snprintf(index, sizeof index, "%s/model.safetensors", s->model);
    FILE *single = length < (int)sizeof index ? fopen(index, "rb") : NULL;
    if (single) fclose(single);
    snprintf(index, sizeof index, "%s/" INDEX, s->model);
    int code = pack_file(s, "config.json", &used, &config);
    if (code == CLI_DONE) code = pack_file(s, "tokenizer.json", &used, &tokenizer);
    if (code == CLI_DONE)
        code = single ? add_weights(s, "model.safetensors", &used, weights) : add_shards(s, index, &used, weights);
    if (code == CLI_DONE)
        *files = json_pack("{s:O, s:O, s:O}", "config", config, "tokenizer", tokenizer, "weights", weights);
    json_decref(config);
    json_decref(tokenizer);
    json_decref(weights);
    return code;
}

int live_module(const cli_session *s, json_t **module)
{
    char folder[PATH_MAX], path[PATH_MAX];
    unsigned char *data = NULL;
    size_t bytes = 0, used = 0;
    if (!cli_find_builtin(folder))
        return cli_error(s, CLI_FAILED,
                         "live.wasm.gz, the library of the page, must be installed in share/mha/live, "
                         "next to share/mha/builtin (got no share/mha/builtin)");
    if (snprintf(path, sizeof path, "%s/../live/live.wasm.gz", folder) >= (int)sizeof path)
        return cli_error(s, CLI_FAILED, "%s: the name of the folder is too long", cli_shown(folder));
    int code = read_file(s, path, &used, &data, &bytes);
    if (code == CLI_DONE && !(*module = page_base64(data, bytes))) code = cli_error(s, CLI_FAILED, "out of memory");
    free(data);
    return code;
}

/* cmd_info.c - `mha info`: what a checkpoint folder, a .safetensors file or an .npy file holds. Reads headers, not weights. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "commands.h"
#include "input.h"
#include "output.h"

/* ---- numbers for people ---- */

/* "22713216 (22.7 million)" */
static void put_count(FILE *out, int64_t n)
{
    static const struct {
        double one;
        const char *name;
    } steps[] = {{1e12, "trillion"}, {1e9, "billion"}, {1e6, "million"}, {1e3, "thousand"}};
    fprintf(out, "%lld", (long long)n);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if ((double)n >= steps[i].one) {
            fprintf(out, " (%.3g %s)", (double)n / steps[i].one, steps[i].name);
            return;
        }
}

static void put_bytes(FILE *out, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1024;
    fprintf(out, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

/* ---- a checkpoint folder ---- */

static json_t *heads_per_layer(const mha_model_info *info)
{
    json_t *array = json_array();
    for (int64_t l = 0; l < info->layers; l++)
        json_array_append_new(array, json_integer(info->heads_per_layer[l]));
    return array;
}

static json_t *model_json(const mha_model_info *info)
{
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:b, s:s}", "family", info->family, "layers",
        (json_int_t)info->layers, "heads", (json_int_t)info->heads, "kv_heads", (json_int_t)info->kv_heads, "head_dim",
        (json_int_t)info->head_dim, "hidden", (json_int_t)info->hidden, "parameters", (json_int_t)info->parameters,
        "bytes", (json_int_t)info->bytes, "kv_bytes_per_token", (json_int_t)info->kv_bytes_per_token, "heads_per_layer",
        heads_per_layer(info), "intermediate", (json_int_t)info->intermediate, "vocab", (json_int_t)info->vocab,
        "max_positions", (json_int_t)info->max_positions, "causal", info->causal, "dtype", mha_dtype_name(info->dtype));
}

static void print_model(const cli_session *s, const mha_model_info *info)
{
    int64_t total = 0;
    for (int64_t l = 0; l < info->layers; l++)
        total += info->heads_per_layer[l];
    FILE *out = s->out;
    fprintf(out, "%sfamily%s      %s, %s\n", cli_bold(s), cli_plain(s), info->family,
            info->causal ? "decoder" : "encoder");
    fprintf(out, "%slayers%s      %lld\n", cli_bold(s), cli_plain(s), (long long)info->layers);
    fprintf(out, "%sheads%s       %lld in all; %lld per layer, %lld for keys and values, %lld numbers wide\n",
            cli_bold(s), cli_plain(s), (long long)total, (long long)info->heads, (long long)info->kv_heads,
            (long long)info->head_dim);
    fprintf(out, "%swidth%s       %lld, feed-forward %lld\n", cli_bold(s), cli_plain(s), (long long)info->hidden,
            (long long)info->intermediate);
    fprintf(out, "%svocabulary%s  %lld tokens; texts of at most %lld\n", cli_bold(s), cli_plain(s),
            (long long)info->vocab, (long long)info->max_positions);
    fprintf(out, "%sparameters%s  ", cli_bold(s), cli_plain(s));
    put_count(out, info->parameters);
    fprintf(out, ", %s in ", mha_dtype_name(info->dtype));
    put_bytes(out, (uint64_t)info->bytes);
    fputc('\n', out);
    if (info->kv_bytes_per_token > 0) {
        fprintf(out, "%sKV cache%s    ", cli_bold(s), cli_plain(s));
        put_bytes(out, (uint64_t)info->kv_bytes_per_token);
        fputs(" per token\n", out);
    }
}

static int run_model(cli_session *s)
{
    mha_model *model;
    const mha_model_options options = {.size = sizeof options, .no_weights = 1, .no_tokenizer = 1};
    int code = cli_model_open(s, &options, &model);
    if (code != CLI_DONE) return code;
    const mha_model_info *info = mha_model_describe(model);
    if (s->options.json)
        code = cli_put_json(s, model_json(info), true);
    else
        print_model(s, info);
    mha_model_free(model);
    return code;
}

/* ---- a file of tensors ---- */

static json_t *tensor_json(const mha_tensor *t)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->shape[i]));
    return json_pack("{s:s, s:s, s:o, s:I}", "name", t->name, "dtype", t->dtype_name, "shape", shape, "bytes",
                     (json_int_t)t->bytes);
}

static json_t *file_json(const mha_file *file)
{
    json_t *tensors = json_array(), *metadata = json_object();
    for (int64_t i = 0; i < mha_file_count(file); i++)
        json_array_append_new(tensors, tensor_json(mha_file_tensor(file, i)));
    for (int64_t i = 0; i < mha_file_metadata_count(file); i++) {
        const char *key, *value;
        size_t bytes;
        if (mha_file_metadata(file, i, &key, &value, &bytes) == MHA_OK)
            json_object_set_new(metadata, key, json_stringn(value, bytes));
    }
    return json_pack("{s:s, s:o, s:o}", "format", mha_file_format(file), "tensors", tensors, "metadata", metadata);
}

static void put_shape(FILE *out, const mha_tensor *t)
{
    fputc('[', out);
    for (int i = 0; i < t->rank; i++)
        fprintf(out, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    fputc(']', out);
}

static void print_file(const cli_session *s, const mha_file *file)
{
    uint64_t bytes = 0, elements = 0;
    for (int64_t i = 0; i < mha_file_count(file); i++) {
        const mha_tensor *t = mha_file_tensor(file, i);
        bytes += t->bytes;
        elements += (uint64_t)t->elements;
        fprintf(s->out, "%-5s %12zu bytes  ", t->dtype_name, t->bytes);
        fputs(cli_bold(s), s->out);
        cli_put_shown(s->out, t->name, strlen(t->name));
        fprintf(s->out, "%s%s", cli_plain(s), *t->name ? " " : "");
        put_shape(s->out, t);
        fputc('\n', s->out);
    }
    for (int64_t i = 0; i < mha_file_metadata_count(file); i++) {
        const char *key, *value;
        size_t length;
        if (mha_file_metadata(file, i, &key, &value, &length) != MHA_OK) continue;
        fputs("metadata  ", s->out);
        cli_put_shown(s->out, key, strlen(key));
        fputs(" = ", s->out);
        cli_put_shown(s->out, value, length);
        fputc('\n', s->out);
    }
    fprintf(s->out, "%s: %lld tensors, ", mha_file_format(file), (long long)mha_file_count(file));
    put_count(s->out, (int64_t)elements);
    fputs(" numbers in ", s->out);
    put_bytes(s->out, bytes);
    fputc('\n', s->out);
}

static int run_file(cli_session *s, const char *path)
{
    mha_file *file;
    mha_error error = {0};
    if (mha_file_open(s->ctx, path, NULL, &file, &error) != MHA_OK) return cli_refuse(s, &error);
    int code = CLI_DONE;
    if (s->options.json)
        code = cli_put_json(s, file_json(file), true);
    else
        print_file(s, file);
    mha_file_free(file);
    return code;
}

static int run(cli_session *s)
{
    struct stat st;
    if (s->arg_count > 1 || (s->arg_count == 1 && s->options.model))
        return cli_usage(s, "one model or one file at a time");
    if (s->arg_count == 0) return run_model(s);
    if (stat(s->args[0], &st) != 0 || !S_ISDIR(st.st_mode)) return run_file(s, s->args[0]);
    s->options.model = s->args[0];
    return run_model(s);
}

const cli_command cli_info = {
    .name = "info",
    .summary = "what a model folder, a .safetensors file or an .npy file holds",
    .usage = "[FOLDER|FILE]",
    .details = "Examples:  mha info -m minilm\n           mha info model.safetensors --json",
    .shared = CLI_MODEL | CLI_JSON,
    .run = run,
};

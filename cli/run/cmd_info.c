/* cmd_info.c - `mha info`: prints the contents of a checkpoint folder, a .safetensors file or an .npy file. It reads
 * only headers, not weights. */
#include "commands.h"
#include "input/input.h"
#include "output.h"
#include "run/info_attention.h"
#include "word_wrap.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* ---- formatting of numbers ---- */

typedef struct number {
    char text[64];
} number;

/* Formats a count, for example "22713216 (22.7 million)". */
static const char *show_count(number *shown, int64_t n)
{
    static const struct {
        double one;
        const char *name;
    } steps[] = {{1e12, "trillion"}, {1e9, "billion"}, {1e6, "million"}, {1e3, "thousand"}};
    const size_t count = sizeof steps / sizeof *steps;
    size_t i = 0;
    while (i < count && (double)n < steps[i].one)
        i++;
    if (i < count)
        snprintf(shown->text, sizeof shown->text, "%lld (%.3g %s)", (long long)n, (double)n / steps[i].one,
                 steps[i].name);
    else
        snprintf(shown->text, sizeof shown->text, "%lld", (long long)n);
    return shown->text;
}

static const char *show_bytes(number *shown, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1024;
    snprintf(shown->text, sizeof shown->text, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return shown->text;
}

/* ---- output for a checkpoint folder ---- */

static json_t *per_layer(const mha_model_info *info, const int64_t *heads)
{
    json_t *array = json_array();
    for (int64_t l = 0; l < info->layers; l++)
        json_array_append_new(array, json_integer(heads[l]));
    return array;
}

/* Formats the head counts of the layers, for example "4" or "1 to 4". */
static const char *show_range(number *shown, const mha_model_info *info, const int64_t *heads)
{
    int64_t min = heads[0], max = heads[0];
    for (int64_t l = 1; l < info->layers; l++) {
        if (heads[l] < min) min = heads[l];
        if (heads[l] > max) max = heads[l];
    }
    snprintf(shown->text, sizeof shown->text, min < max ? "%lld to %lld" : "%lld", (long long)min, (long long)max);
    return shown->text;
}

static int64_t total(const mha_model_info *info, const int64_t *heads)
{
    int64_t sum = 0;
    for (int64_t l = 0; l < info->layers; l++)
        sum += heads[l];
    return sum;
}

static json_t *image_json(const mha_model_info *info)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "channels", (json_int_t)info->image_channels, "height",
                     (json_int_t)info->image_height, "width", (json_int_t)info->image_width, "patch_height",
                     (json_int_t)info->patch_height, "patch_width", (json_int_t)info->patch_width, "classes",
                     (json_int_t)info->classes);
}

static json_t *model_json(const mha_model_info *info)
{
    json_t *json = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:b, s:s, s:o, s:o, s:o, s:o}", "family",
        info->family, "layers", (json_int_t)info->layers, "heads", (json_int_t)info->heads, "kv_heads",
        (json_int_t)info->kv_heads, "head_dim", (json_int_t)info->head_dim, "hidden", (json_int_t)info->hidden,
        "parameters", (json_int_t)info->parameters, "bytes", (json_int_t)info->bytes, "kv_bytes_per_token",
        (json_int_t)info->kv_bytes_per_token, "heads_per_layer", per_layer(info, info->heads_per_layer), "intermediate",
        (json_int_t)info->intermediate, "vocab", (json_int_t)info->vocab, "max_positions",
        (json_int_t)info->max_positions, "causal", info->causal, "dtype", mha_dtype_name(info->dtype),
        "key_heads_per_layer", per_layer(info, info->key_heads_per_layer), "value_heads_per_layer",
        per_layer(info, info->value_heads_per_layer), "feed_forward_per_layer",
        per_layer(info, info->feed_forward_per_layer), "attention_per_layer", info_attention_json(info));
    if (json && info->cross_heads_per_layer)
        json_object_set_new(json, "cross_heads_per_layer", per_layer(info, info->cross_heads_per_layer));
    if (json && info->images_ignored) json_object_set_new(json, "images_ignored", json_true());
    return json;
}

enum { TITLE = 12 }; /* columns before the value of a line */

static void put_title(const cli_session *s, const char *title)
{
    fprintf(s->out, "%s%s%s%*s", cli_bold(s), title, cli_plain(s), TITLE - (int)strlen(title), "");
}

/* Prints the input of the model: tokens, or images. */
static void print_input(const cli_session *s, const mha_model_info *info)
{
    put_title(s, info->image_channels ? "images" : "vocabulary");
    if (info->image_channels)
        cli_put_prose(s, TITLE, TITLE, "%lld x %lld pixels, %lld channels; patches of %lld x %lld; %lld tokens",
                      (long long)info->image_width, (long long)info->image_height, (long long)info->image_channels,
                      (long long)info->patch_width, (long long)info->patch_height, (long long)info->max_positions);
    else
        cli_put_prose(s, TITLE, TITLE, "%lld tokens; at most %lld per text", (long long)info->vocab,
                      (long long)info->max_positions);
    if (!info->classes) return;
    put_title(s, "classes");
    cli_put_prose(s, TITLE, TITLE, "%lld", (long long)info->classes);
}

static const char *kind_of(const mha_model *model)
{
    const mha_model_info *info = mha_model_describe(model);
    const mha_model *vision = mha_model_vision(model);
    if (info->encoder_decoder) return "encoder-decoder; its decoder:";
    if (vision && vision != model) return "text and images; its text tower:";
    if (info->images_ignored)
        return "decoder, the text part of a model of text and images; tensors that read images are ignored";
    return info->causal ? "decoder" : "encoder";
}

static void print_heads(const cli_session *s, const mha_model_info *info)
{
    number a, b, c;
    put_title(s, "heads");
    cli_put_prose(s, TITLE, TITLE, "%lld in total; per layer: %s query, %s key, %s value heads; width %lld",
                  (long long)total(info, info->heads_per_layer), show_range(&a, info, info->heads_per_layer),
                  show_range(&b, info, info->key_heads_per_layer), show_range(&c, info, info->value_heads_per_layer),
                  (long long)info->head_dim);
    if (!info->cross_heads_per_layer) return;
    put_title(s, "cross heads");
    cli_put_prose(s, TITLE, TITLE, "%lld in total; per layer: %s heads, which read the encoder",
                  (long long)total(info, info->cross_heads_per_layer),
                  show_range(&a, info, info->cross_heads_per_layer));
}

static void print_model(const cli_session *s, const mha_model *model)
{
    const mha_model_info *info = mha_model_describe(model);
    number a, b;
    put_title(s, "family");
    cli_put_prose(s, TITLE, TITLE, "%s, %s", info->family, kind_of(model));
    put_title(s, "layers");
    cli_put_prose(s, TITLE, TITLE, "%lld", (long long)info->layers);
    print_heads(s, info);
    put_title(s, "attention");
    info_put_attention(s, TITLE, info);
    put_title(s, "width");
    cli_put_prose(s, TITLE, TITLE, "%lld, feed-forward %s", (long long)info->hidden,
                  show_range(&a, info, info->feed_forward_per_layer));
    print_input(s, info);
    put_title(s, "parameters");
    cli_put_prose(s, TITLE, TITLE, "%s, %s in %s", show_count(&a, info->parameters), mha_dtype_name(info->dtype),
                  show_bytes(&b, (uint64_t)info->bytes));
    if (info->kv_bytes_per_token > 0) {
        put_title(s, "KV cache");
        cli_put_prose(s, TITLE, TITLE, "%s per token", show_bytes(&a, (uint64_t)info->kv_bytes_per_token));
    }
}

/* Prints the encoder of an encoder-decoder, or the image tower of a CLIP model, in one line. */
static void print_side(const cli_session *s, const char *title, const mha_model *side)
{
    const mha_model_info *info = mha_model_describe(side);
    number a, b;
    put_title(s, title);
    cli_put_prose(s, TITLE, TITLE, "%lld layers; per layer: %s heads, width %lld; feed-forward %s",
                  (long long)info->layers, show_range(&a, info, info->heads_per_layer), (long long)info->head_dim,
                  show_range(&b, info, info->feed_forward_per_layer));
    if (!info->feature_bins) return;
    put_title(s, "audio");
    cli_put_prose(s, TITLE, TITLE, "%lld log-mel bins, %lld frames of 10 ms per window", (long long)info->feature_bins,
                  2 * (long long)info->max_positions);
}

static json_t *sides_json(const mha_model *model)
{
    json_t *json = model_json(mha_model_describe(model));
    const mha_model *encoder = mha_model_encoder(model);
    const int64_t bins = encoder ? mha_model_describe(encoder)->feature_bins : 0;
    if (bins) json_object_set_new(json, "feature_bins", json_integer(bins));
    const mha_model *vision = mha_model_vision(model);
    json_t *images = vision && vision != model ? model_json(mha_model_describe(vision)) : json;
    if (encoder) json_object_set_new(json, "encoder", model_json(mha_model_describe(encoder)));
    if (vision) json_object_set_new(images, "image", image_json(mha_model_describe(vision)));
    if (images != json) json_object_set_new(json, "vision", images);
    return json;
}

static int run_model(cli_session *s)
{
    mha_model *model;
    const mha_model_options options = {.size = sizeof options, .no_weights = 1, .no_tokenizer = 1};
    int code = cli_model_open(s, &options, &model);
    if (code != CLI_DONE) return code;
    const mha_model *encoder = mha_model_encoder(model), *vision = mha_model_vision(model);
    if (s->options.json)
        code = cli_put_json(s, sides_json(model), true);
    else
        print_model(s, model);
    if (!s->options.json && encoder) print_side(s, "encoder", encoder);
    if (!s->options.json && vision && vision != model) {
        print_side(s, "vision", vision);
        print_input(s, mha_model_describe(vision));
    }
    mha_model_free(model);
    return code;
}

/* ---- output for a tensor file ---- */

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

/* Prints dtype, bytes, name and shape; on a narrow terminal, the name is on a second line. */
static void print_tensor(const cli_session *s, const mha_tensor *t)
{
    char shape[32 * 24 + 3]; /* the rank is at most 32 (io.h) */
    int n = snprintf(shape, sizeof shape, "[");
    for (int i = 0; i < t->rank; i++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    n += snprintf(shape + n, sizeof shape - (size_t)n, "]");
    const int used = fprintf(s->out, "%-5s %12zu bytes  ", t->dtype_name, t->bytes);
    const bool same_line = used + cli_shown_columns(t->name, strlen(t->name)) + (*t->name ? 1 : 0) + n <= s->columns;
    if (!same_line) fprintf(s->out, "%s\n  ", shape);
    fputs(cli_bold(s), s->out);
    cli_put_shown(s->out, t->name, strlen(t->name));
    fprintf(s->out, "%s%s%s\n", cli_plain(s), same_line && *t->name ? " " : "", same_line ? shape : "");
}

static void print_file(const cli_session *s, const mha_file *file)
{
    uint64_t bytes = 0, elements = 0;
    for (int64_t i = 0; i < mha_file_count(file); i++) {
        const mha_tensor *t = mha_file_tensor(file, i);
        bytes += t->bytes;
        elements += (uint64_t)t->elements;
        print_tensor(s, t);
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
    number a, b;
    cli_put_prose(s, 0, 0, "%s: %lld tensors, %s elements in %s", mha_file_format(file),
                  (long long)mha_file_count(file), show_count(&a, (int64_t)elements), show_bytes(&b, bytes));
}

static int run_file(cli_session *s, const char *path)
{
    mha_file *file;
    mha_error error = {0};
    if (mha_checkpoint_open(s->ctx, path, NULL, &file, &error) != MHA_OK) return cli_refuse(s, &error);
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
    if (s->arg_count > 1 || (s->arg_count == 1 && s->options.model)) return cli_usage(s, "give one model or one file");
    if (s->arg_count == 0) return run_model(s);
    if (stat(s->args[0], &st) != 0 || !S_ISDIR(st.st_mode)) return run_file(s, s->args[0]);
    s->options.model = s->args[0];
    return run_model(s);
}

const cli_command cli_info = {
    .name = "info",
    .summary = "print the contents of a model folder, .safetensors, .npy or index",
    .usage = "[FOLDER|FILE]",
    .shared = CLI_MODEL | CLI_JSON,
    .examples = "mha info\n"
                "mha info -m minilm\n"
                "mha info model.safetensors --json\n",
    .run = run,
};

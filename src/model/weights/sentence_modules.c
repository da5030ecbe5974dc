/* sentence_modules.c - see sentence_modules.h. */
#include "model/weights/sentence_modules.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "io/json/json.h"
#include "io/tensor_file.h"
#include "mha/io.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MODULES "modules.json"
#define CONFIG "config.json"
#define WEIGHTS "model.safetensors"

enum { DENSE_MAX = 8 }; /* dense layers of a folder */

/* Kinds of modules in the order in which they are applied. The first two occur at most once. */
typedef enum kind { NONE, TRANSFORMER, POOLING, DENSE, NORMALIZE, KINDS } kind;
static const char *const kind_names[KINDS] = {"", "Transformer", "Pooling", "Dense", "Normalize"};

struct mha__sentence {
    mha_linear *dense[DENSE_MAX]; /* [count]; NULL in a model without weights */
    int count;
    int64_t width, widest; /* of the vector after the last layer read so far; largest width of a vector */
    kind last;             /* of the last module read so far */
    char refused[320];     /* why vectors cannot be computed; "" = they can */
};

/* A module whose folder is read. */
typedef struct module {
    mha_model *model;
    struct mha__sentence *sentence;
    const char *path;      /* its folder, as modules.json names it */
    char folder[PATH_MAX]; /* the same with the folder of the model */
} module;

/* Records that the vectors cannot be computed: WHAT must be RULE (got TEXT). No further modules are read. */
static mha_status refuse(const module *m, const char *what, const char *rule, const char *text)
{
    snprintf(m->sentence->refused, sizeof m->sentence->refused, "%s%s%s must be %s for vectors of texts (got %s)",
             *m->path ? mha__quote(&(mha__quoted){0}, m->path, strlen(m->path)) : "", *m->path ? "/" : "", what, rule,
             mha__quote(&(mha__quoted){0}, text, strlen(text)));
    return MHA_OK;
}

/* Returns the part of a class name after its last dot. */
static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* ---- pooling ---- */

static mha_status take_pooling(const module *m, const mha__json_obj *o, mha_error *err)
{
    static const char *const modes[] = {"cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"},
                             *const keys[] = {"pooling_mode_cls_token",           "pooling_mode_mean_tokens",
                                              "pooling_mode_max_tokens",          "pooling_mode_mean_sqrt_len_tokens",
                                              "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"};
    const char *mode = NULL;
    MHA__TRY(mha__json_string(o, "pooling_mode", MHA__OPTIONAL, &mode, NULL, err)); /* name in newer files */
    for (size_t n = 0; n < sizeof modes / sizeof *modes; n++) {
        bool on = n == 1 && !mode && !mha__json_has(o, keys[n]); /* the mean is the default */
        MHA__TRY(mha__json_bool(o, keys[n], MHA__OPTIONAL, &on, err));
        if (on) mode = mode && strcmp(mode, modes[n]) != 0 ? "more than one" : modes[n];
    }
    const bool cls = mode && strcmp(mode, "cls") == 0;
    if (!cls && (!mode || strcmp(mode, "mean") != 0))
        return refuse(m, CONFIG ": pooling_mode", "cls or mean", mode ? mode : "none");
    m->model->info.pool = cls ? MHA_POOL_CLS : MHA_POOL_MEAN;
    return MHA_OK;
}

/* ---- dense layers ---- */

/* Finds a tensor of a dense layer, whose shape must be that of config.json. */
static mha_status find_tensor(const mha_file *file, const char *name, int rank, const int64_t *shape,
                              const mha_tensor **tensor, mha_error *err)
{
    const mha_tensor *t = *tensor = mha_file_find(file, name);
    const char *path = mha_file_path(file);
    if (t && t->rank == rank && memcmp(t->shape, shape, (size_t)rank * sizeof *shape) == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: tensor \"%s\" must be of shape %s, as " CONFIG " requires (got %s)",
                     mha__quote(&(mha__quoted){0}, path, strlen(path)), name,
                     mha__quote_shape(&(mha__quoted){0}, rank, shape),
                     t ? mha__quote_shape(&(mha__quoted){0}, t->rank, t->shape) : "no such tensor");
}

/* Creates the next dense layer from weight and bias [out], where `bias` may be NULL. */
static mha_status create(const module *m, const mha_tensor *weight, const mha_tensor *bias, mha_activation activation,
                         mha_error *err)
{
    struct mha__sentence *s = m->sentence;
    mha_ctx *ctx = m->model->ctx;
    const size_t elements = (size_t)weight->elements + (size_t)weight->shape[0]; /* the file contains the weight */
    float *memory = mha__alloc(ctx, elements * sizeof *memory);
    if (!memory) return mha__no_memory(err, elements * sizeof *memory, "a dense layer");
    mha_matrix part = {.weight = memory, .bias = bias ? memory + weight->elements : NULL, .out = weight->shape[0]};
    mha_status status = mha_tensor_read(weight, MHA_F32, memory, err);
    if (status == MHA_OK && bias) status = mha_tensor_read(bias, MHA_F32, memory + weight->elements, err);
    if (status == MHA_OK)
        status = mha_linear_create_stack(ctx, s->width, &part, 1, activation, &s->dense[s->count], err);
    mha__free(ctx, memory);
    return status;
}

static mha_status load_file(const module *m, const mha_file *file, int64_t out, bool biased, mha_activation activation,
                            mha_error *err)
{
    const mha_tensor *weight, *bias = NULL;
    const int64_t shape[] = {out, m->sentence->width};
    MHA__TRY(find_tensor(file, "linear.weight", 2, shape, &weight, err));
    if (biased) MHA__TRY(find_tensor(file, "linear.bias", 1, shape, &bias, err));
    return create(m, weight, bias, activation, err);
}

static mha_status load(const module *m, int64_t out, bool biased, mha_activation activation, mha_error *err)
{
    char path[PATH_MAX];
    mha_file *file = NULL;
    if (m->model->outer.check_only) return MHA_OK;
    if (snprintf(path, sizeof path, "%s/" WEIGHTS, m->folder) >= (int)sizeof path)
        return mha__fail(err, MHA_ERR_IO, "%s: the path must be shorter",
                         mha__quote(&(mha__quoted){0}, m->path, strlen(m->path)));
    MHA__TRY(mha_checkpoint_open(m->model->ctx, path, NULL, &file, err));
    const mha_status status = load_file(m, file, out, biased, activation, err);
    mha_file_free(file);
    return status;
}

static mha_status take_dense(const module *m, const mha__json_obj *o, mha_error *err)
{
    struct mha__sentence *s = m->sentence;
    int64_t in = 0, out = 0;
    bool biased = true;
    const char *activation = "Tanh", *input = "sentence_embedding";
    MHA__TRY(mha__json_dim(o, "in_features", MHA__REQUIRED, MHA__DIM, &in, err));
    MHA__TRY(mha__json_dim(o, "out_features", MHA__REQUIRED, MHA__DIM, &out, err));
    MHA__TRY(mha__json_bool(o, "bias", MHA__OPTIONAL, &biased, err));
    MHA__TRY(mha__json_string(o, "activation_function", MHA__OPTIONAL, &activation, NULL, err));
    MHA__TRY(mha__json_string(o, "module_input_name", MHA__OPTIONAL, &input, NULL, err));
    activation = last_part(activation);
    const bool tanh = strcmp(activation, "Tanh") == 0;
    if (in != s->width)
        return mha__fail(err, MHA_ERR_FORMAT,
                         CONFIG ": in_features must be %lld, the width before the layer (got %lld)",
                         (long long)s->width, (long long)in);
    if (!tanh && strcmp(activation, "Identity") != 0)
        return refuse(m, CONFIG ": activation_function", "Identity or Tanh", activation);
    if (strcmp(input, "sentence_embedding") != 0)
        return refuse(m, CONFIG ": module_input_name", "sentence_embedding", input);
    if (s->count == DENSE_MAX) return refuse(m, CONFIG, "one of at most 8 dense layers", "another dense layer");
    if (!mha__source_exists(m->folder, WEIGHTS)) return refuse(m, WEIGHTS, "a file", "none");
    MHA__TRY(load(m, out, biased, tanh ? MHA_ACT_TANH : MHA_ACT_NONE, err));
    s->count++;
    s->width = out;
    s->widest = mha__max64(s->widest, out);
    return MHA_OK;
}

/* ---- modules ---- */

/* Reads config.json in the folder of a module. */
static mha_status read_config(const module *m, mha_status (*take)(const module *, const mha__json_obj *, mha_error *),
                              mha_error *err)
{
    const mha__json *json = NULL;
    mha_status status = mha__json_read(m->model->ctx, m->folder, CONFIG, MHA__CONFIG_BYTES, &json, err);
    if (status == MHA_OK) status = take(m, &(mha__json_obj){.json = json, .file = CONFIG}, err);
    mha__json_free(json);
    return mha__in_folder(status, m->folder, CONFIG, err);
}

static kind kind_of(const char *name)
{
    kind k = TRANSFORMER;
    while (k < KINDS && strcmp(kind_names[k], name) != 0)
        k++;
    return k;
}

/* Checks that a module of kind `k` may follow those read so far, as sentence-transformers requires: Pooling reads the
 * vectors of tokens and would discard the result of an earlier Pooling, Dense or Normalize. */
static mha_status check_order(const module *m, kind k, size_t index)
{
    char what[64], rule[128];
    const kind last = m->sentence->last;
    if (k > last || (k == last && k >= DENSE)) return MHA_OK;
    snprintf(what, sizeof what, MODULES ": [%zu].type", index);
    snprintf(rule, sizeof rule, "a module that may follow %s (order: one Transformer, one Pooling, Dense, Normalize)",
             kind_names[last]);
    return refuse(m, what, rule, kind_names[k]);
}

/* Reads the folder of a pooling or a dense layer. */
static mha_status take_folder(module *m, const char *folder, const mha__json_obj *o, kind k, size_t path_bytes,
                              mha_error *err)
{
    if (!mha__bare_name(m->path, path_bytes)) return mha__json_refuse(o, "path", "the name of a folder", err);
    if (snprintf(m->folder, sizeof m->folder, "%s/%s", folder, m->path) >= (int)sizeof m->folder)
        return mha__json_refuse(o, "path", "a shorter name", err);
    return read_config(m, k == POOLING ? take_pooling : take_dense, err);
}

static mha_status take_module(mha_model *model, const char *folder, const mha__json *item, size_t index, mha_error *err)
{
    const mha__json_obj o = {.json = item, .file = MODULES};
    const char *type = NULL, *path = "";
    size_t bytes = 0;
    MHA__TRY(mha__json_string(&o, "type", MHA__REQUIRED, &type, NULL, err));
    MHA__TRY(mha__json_string(&o, "path", MHA__OPTIONAL, &path, &bytes, err));
    type = last_part(type);
    const kind k = kind_of(type);
    module m = {.model = model, .sentence = model->sentence, .path = ""};
    if (k == KINDS) return refuse(&m, MODULES ": type", "one of Transformer, Pooling, Dense, Normalize", type);
    MHA__TRY(check_order(&m, k, index));
    m.sentence->last = k;
    if (*m.sentence->refused || k == NORMALIZE) return MHA_OK;
    if (k == TRANSFORMER) return *path ? refuse(&m, MODULES ": path of the transformer", "empty", path) : MHA_OK;
    m.path = path;
    return take_folder(&m, folder, &o, k, bytes, err);
}

static mha_status take_modules(mha_model *model, const char *folder, const mha__json *list, mha_error *err)
{
    if (!mha__json_is(list, MHA__JSON_ARRAY))
        return mha__fail(err, MHA_ERR_FORMAT, MODULES ": must be a list of modules (got %s)",
                         mha__json_show(&(mha__quoted){0}, list));
    for (mha__json_step i = {0}; !*model->sentence->refused && mha__json_each(list, &i);)
        MHA__TRY(take_module(model, folder, i.value, i.index, err));
    return MHA_OK;
}

mha_status mha__sentence_open(mha_model *model, const char *folder, mha_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    const mha__json *json = NULL;
    const mha__config *c = &model->config;
    if (c->channels || c->mel_bins || c->family->pools || c->family->one_side || !mha__source_exists(folder, MODULES))
        return MHA_OK;
    model->sentence = mha__calloc(model->ctx, 1, sizeof *model->sentence);
    if (!model->sentence) return mha__no_memory(err, sizeof *model->sentence, "the modules of a folder");
    model->sentence->width = model->sentence->widest = c->hidden;
    MHA__TRY(mha__read_whole(model->ctx, folder, MODULES, MHA__CONFIG_BYTES, &text, &bytes, err));
    mha_status status = mha__json_parse(model->ctx, MODULES, text, bytes, MHA__JSON_BOM | MHA__JSON_ANY, &json, err);
    if (status == MHA_OK) status = take_modules(model, folder, json, err);
    mha__json_free(json);
    mha__free(model->ctx, text);
    model->info.embedding_width = model->sentence->width;
    return mha__in_folder(status, folder, MODULES, err);
}

void mha__sentence_free(mha_model *model)
{
    for (int n = 0; model->sentence && n < model->sentence->count; n++)
        mha_linear_free(model->sentence->dense[n]);
    mha__free(model->ctx, model->sentence);
}

/* ---- use ---- */

mha_status mha__sentence_check(const mha_model *model, mha_error *err)
{
    if (!model->sentence || !*model->sentence->refused) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s", model->sentence->refused);
}

int64_t mha__sentence_room(const mha_model *model)
{
    return model->sentence && model->sentence->count > 1 ? 2 * model->sentence->widest : 0;
}

mha_status mha__sentence_dense(const mha_model *model, const float *pooled, float *room, float *out, mha_error *err)
{
    const struct mha__sentence *s = model->sentence;
    const float *from = pooled;
    if (!s || !s->count) {
        memcpy(out, pooled, (size_t)model->config.hidden * sizeof *out);
        return MHA_OK;
    }
    for (int n = 0; n < s->count; n++) {
        float *to = n == s->count - 1 ? out : room + n % 2 * s->widest;
        MHA__TRY(mha_linear_forward(s->dense[n], from, 1, to, err));
        from = to;
    }
    return MHA_OK;
}

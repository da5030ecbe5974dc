/* weights.c - returns the tensors of a role as checked float32 elements.
 *
 * Invariant: a returned pointer covers exactly the shape that the config defines, whatever the file contains. A tensor
 * is used in place if it is aligned f32, else converted once. */
#include "model/weights/weights.h"

#include "base/ctx.h"
#include "base/error.h"
#include "io/block_types.h"
#include "io/derived_tensor.h"
#include "layer/convolution.h"
#include "model/gguf/gguf_parts.h"
#include "model/weights/tensor_order.h"
#include <stdio.h>
#include <string.h>

typedef struct wanted {
    int rank;
    int64_t shape[4];
} wanted;

/* Returns the dimension at an offset of mha__part: a field of the config, or a width of the layer. */
static int64_t dimension(const mha__config *config, int64_t layer, size_t offset)
{
    int64_t value;
    if (offset < sizeof *config) {
        memcpy(&value, (const char *)config + offset, sizeof value);
    } else {
        const mha__layer_widths widths = mha__config_widths(config, layer);
        memcpy(&value, (const char *)&widths + (offset - sizeof *config), sizeof value);
    }
    return value;
}

/* Returns the bool at an offset in the config; true for offset 0. */
static bool flag_of(const mha__config *config, size_t offset)
{
    bool flag = true;
    if (offset) memcpy(&flag, (const char *)config + offset, sizeof flag);
    return flag;
}

/* Returns true if the model has the part. */
static bool exists(const mha__config *c, mha__role role, int64_t layer)
{
    const mha__part *part = mha__part_of(c, role);
    const mha__role of = mha__part_role(role);
    if (part->kind == MHA__PART_ABSENT || !flag_of(c, part->only_if)) return false;
    if (layer == 0 && part->not_first) return false;
    if (role >= MHA__ROLES && (!mha__of_experts(role) || role >= mha__config_roles(c))) return false;
    if (layer >= 0 && c->attention_only[layer] && of >= MHA__FIRST_OF_FEED) return false;
    if (layer >= 0 && of >= MHA__GATE && of <= MHA__DOWN) return !c->sparse[layer];
    if (layer >= 0 && of >= MHA__SHARED_GATE && of <= MHA__EXPERTS_DOWN) return c->sparse[layer];
    if (layer >= 0 && role == MHA__HEAD_CHOICE) return c->attention[layer].choice.of != MHA_CHOICE_NONE;
    if (layer >= 0 && role == MHA__HEAD_CHOICE_HIDDEN) return c->attention[layer].choice.of == MHA_CHOICE_OPTIONS;
    return layer < 0 || (role != MHA__QUERY_NORM && role != MHA__KEY_NORM) || c->attention[layer].normed;
}

static const char *path_of(const mha__weights *w)
{
    return mha_file_path(w->shards->file);
}

enum { PART_NAME = 96 }; /* longer than any name of a family table with the number of an expert */

/* Replaces the '*' of a name with the number of the expert. */
static void expert_name(const char *name, int64_t expert, char own[PART_NAME])
{
    const char *star = strchr(name, '*');
    if (star)
        snprintf(own, PART_NAME, "%.*s%lld%s", (int)(star - name), name, (long long)expert, star + 1);
    else
        snprintf(own, PART_NAME, "%s", name);
}

static void make_name(const mha__config *c, const char *prefix, mha__role role, int64_t layer, const char *suffix,
                      char *name)
{
    const mha__family *f = c->family;
    char own[PART_NAME];
    const mha__part *part = mha__part_of(c, role);
    const bool other = part->other && flag_of(c, part->other_if);
    expert_name(other ? part->other : part->name, role / MHA__ROLES, own);
    if (own[0] == '/')
        snprintf(name, MHA__TENSOR_NAME, "%s%s", own + 1, suffix);
    else if (layer >= 0)
        snprintf(name, MHA__TENSOR_NAME, "%s%s%lld.%s%s", prefix, f->layer, (long long)mha__config_tensors(c, layer),
                 own, suffix);
    else
        snprintf(name, MHA__TENSOR_NAME, "%s%s%s", prefix, own, suffix);
}

static const mha_tensor *find(const mha__weights *w, mha__role role, int64_t layer, const char *suffix, char *name)
{
    make_name(w->config, w->prefix, role, layer, suffix, name);
    return mha__shards_find(w->shards, name);
}

void mha__weights_begin(mha__weights *weights)
{
    const mha__family *family = weights->config->family;
    const mha__role first = family->parts[MHA__WORDS].kind     ? MHA__WORDS
                            : family->parts[MHA__PATCHES].kind ? MHA__PATCHES
                                                               : MHA__FIRST_CONVOLUTION;
    char name[MHA__TENSOR_NAME];
    for (int i = 0; family->prefixes[i]; i++) {
        weights->prefix = family->prefixes[i];
        if (find(weights, first, -1, ".weight", name)) return;
    }
    weights->prefix = family->prefixes[0];
}

/* Writes the name that a tensor has in the file. Returns what the shapes in messages belong to. */
static const char *stored_name(const mha__weights *w, const char *name, char stored[MHA__TENSOR_NAME])
{
    mha__gguf_change change = MHA__GGUF_SAME;
    if (w->shards->file->gguf)
        change = mha__gguf_stored_name(w->config->family->name, name, stored, MHA__TENSOR_NAME);
    else
        snprintf(stored, MHA__TENSOR_NAME, "%s", name);
    return change == MHA__GGUF_EXPERTS      ? "shape of each matrix of tensor"
           : change == MHA__GGUF_TRANSPOSED ? "transposed shape of tensor"
           : change == MHA__GGUF_STACK      ? "transposed shape of tensor"
           : change == MHA__GGUF_GATE       ? "shape of gate and up, transposed, with tensor"
                                            : "shape of tensor";
}

static mha_status check(const mha__weights *w, const mha_tensor *tensor, const wanted *want, mha_error *err)
{
    mha__quoted file = {0};
    char name[MHA__TENSOR_NAME];
    mha__quote(&file, path_of(w), strlen(path_of(w)));
    const char *shape = stored_name(w, tensor->name, name);
    if (tensor->rank != want->rank || memcmp(tensor->shape, want->shape, (size_t)want->rank * sizeof *want->shape) != 0)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: %s \"%s\" must be %s, as config.json requires (got %s)", file.text,
                         shape, name, mha__quote_shape(&(mha__quoted){0}, want->rank, want->shape),
                         mha__quote_shape(&(mha__quoted){0}, tensor->rank, tensor->shape));
    if (tensor->dtype != MHA_F32 && tensor->dtype != MHA_F16 && tensor->dtype != MHA_BF16 &&
        !mha__tensor_quantized(tensor))
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: type of tensor \"%s\" must be one of F32, F16, BF16 (got %s)",
                         file.text, name,
                         mha__quote(&(mha__quoted){0}, tensor->dtype_name, strlen(tensor->dtype_name)));
    return MHA_OK;
}

static mha_status convert(mha__weights *w, const mha_tensor *tensor, const float **out, mha_error *err)
{
    const size_t bytes = (size_t)tensor->elements * sizeof(float); /* at most twice the bytes in the file */
    float *copy = mha__weights_keep(w, bytes);
    if (!copy) return mha__no_memory(err, bytes, tensor->name);
    *out = copy;
    return mha_tensor_read(tensor, MHA_F32, copy, err);
}

static mha_status missing(const mha__weights *w, const char *name, mha_error *err)
{
    char stored[MHA__TENSOR_NAME];
    stored_name(w, name, stored);
    return mha__fail(err, MHA_ERR_FORMAT, "%s: tensor \"%s\" is missing",
                     mha__quote(&(mha__quoted){0}, path_of(w), strlen(path_of(w))), stored);
}

/* Finds the tensor of a part under one of two suffixes. */
static mha_status take(mha__weights *w, mha__role role, int64_t layer, const char *suffix, const char *old_suffix,
                       const wanted *want, const float **out, mha_error *err)
{
    char name[MHA__TENSOR_NAME];
    const mha_tensor *tensor = old_suffix ? find(w, role, layer, old_suffix, name) : NULL;
    if (!tensor) tensor = find(w, role, layer, suffix, name);
    if (!tensor) return missing(w, name, err);
    MHA__TRY(check(w, tensor, want, err));
    if (!w->parameters) w->dtype = mha__derived_of(tensor) ? MHA_DTYPE_OTHER : tensor->dtype;
    if (role != MHA__ROUTER_BIAS) w->parameters += tensor->elements; /* transformers does not count it */
    w->bytes += (int64_t)mha__shards_saved_bytes(w->shards, tensor);
    if (w->check_only) return MHA_OK;
    if (tensor->dtype != MHA_F32 || !mha_tensor_aligned(tensor)) return convert(w, tensor, out, err);
    *out = tensor->data;
    return MHA_OK;
}

/* Suffixes and layout of each kind of part. */
static const struct {
    const char *weight, *old_weight; /* suffixes of the weight */
    const char *bias, *old_bias;     /* suffixes of the bias; NULL = no bias */
    int rank;
    bool transposed; /* stored [columns, rows] */
    bool plus_one;   /* stored as the difference from 1 */
    bool one_row;    /* stored [1, rows], or [1, rows, columns] */
    bool patches;    /* stored [rows, channels, patch_height, patch_width] */
    bool taps;       /* stored [rows, columns, taps] */
} kinds[] = {
    [MHA__PART_TABLE] = {.weight = ".weight", .rank = 2},
    [MHA__PART_LINEAR] = {.weight = ".weight", .bias = ".bias", .rank = 2},
    [MHA__PART_CONV1D] = {.weight = ".weight", .bias = ".bias", .rank = 2, .transposed = true},
    [MHA__PART_NORM] = {".weight", ".gamma", ".bias", ".beta", 1, false, false, false, false, false},
    [MHA__PART_NORM_ONLY] = {.weight = ".weight", .rank = 1},
    [MHA__PART_HEAD_NORMS] = {.weight = ".weight", .rank = 2},
    [MHA__PART_RMS] = {.weight = ".weight", .rank = 1},
    [MHA__PART_RMS_1] = {.weight = ".weight", .rank = 1, .plus_one = true},
    [MHA__PART_VECTOR] = {.weight = "", .rank = 1},
    [MHA__PART_BUFFER] = {.weight = "", .rank = 1, .one_row = true},
    [MHA__PART_CONVOLUTION] = {.weight = ".weight", .bias = ".bias", .rank = 2, .taps = true},
    [MHA__PART_STACK] = {.weight = "", .bias = "_bias", .rank = 2, .transposed = true},
    [MHA__PART_CONV2D] = {.weight = ".weight", .bias = ".bias", .rank = 1, .patches = true},
    [MHA__PART_TOKENS] = {.weight = "", .rank = 2, .one_row = true},
    [MHA__PART_SCALAR] = {.weight = ""},
};

/* Returns the shape that a role's weight, or its bias, has in a checkpoint. */
static wanted wanted_of(const mha__config *c, mha__role role, int64_t layer, bool bias)
{
    const mha__part *p = mha__part_of(c, role);
    const bool matrix = !bias && kinds[p->kind].rank == 2;
    wanted w = {0};
    if (p->kind == MHA__PART_SCALAR) return w;
    const int64_t rows = dimension(c, layer, p->rows), columns = matrix ? dimension(c, layer, p->columns) : 1;
    if (kinds[p->kind].patches && !bias) return (wanted){4, {rows, c->channels, c->patch_height, c->patch_width}};
    if (p->kind == MHA__PART_STACK) w.shape[w.rank++] = c->experts;
    if (kinds[p->kind].one_row) w.shape[w.rank++] = 1;
    if (matrix && kinds[p->kind].transposed) w.shape[w.rank++] = columns;
    w.shape[w.rank++] = rows;
    if (matrix && !kinds[p->kind].transposed) w.shape[w.rank++] = columns;
    if (matrix && kinds[p->kind].taps) w.shape[w.rank++] = p->taps ? dimension(c, layer, p->taps) : MHA__TAPS;
    return w;
}

static bool has_bias(const mha__config *config, const mha__part *p)
{
    return flag_of(config, p->bias) && kinds[p->kind].bias;
}

bool mha__weights_expected(const mha__config *config, mha__role role, int64_t layer, bool bias, char *name,
                           mha_named_tensor *tensor)
{
    const mha__family *f = config->family;
    const mha__part *p = mha__part_of(config, role);
    const char *const *prefix = f->prefixes;
    if (!exists(config, role, layer) || (bias && !has_bias(config, p))) return false;
    while (*prefix && !**prefix)
        prefix++;
    make_name(config, *prefix ? *prefix : "", role, layer, bias ? kinds[p->kind].bias : kinds[p->kind].weight, name);
    const wanted want = wanted_of(config, role, layer, bias);
    *tensor = (mha_named_tensor){.name = name, .dtype = MHA_F32, .rank = want.rank};
    memcpy(tensor->shape, want.shape, sizeof want.shape);
    return true;
}

const mha_tensor *mha__weights_tensor(const mha__weights *w, mha__role role, int64_t layer, bool bias)
{
    const mha__part *p = mha__part_of(w->config, role);
    const char *old = bias ? kinds[p->kind].old_bias : kinds[p->kind].old_weight;
    char name[MHA__TENSOR_NAME];
    if (!exists(w->config, role, layer) || (bias && !has_bias(w->config, p))) return NULL;
    const mha_tensor *tensor = old ? find(w, role, layer, old, name) : NULL;
    return tensor ? tensor : find(w, role, layer, bias ? kinds[p->kind].bias : kinds[p->kind].weight, name);
}

bool mha__tensor_each(const mha__config *c, mha__tensor_step *s)
{
    do {
        const int64_t roles = mha__config_roles(c);
        s->layer = s->next / (2 * roles) - 1;
        s->role = (mha__role)(s->next / 2 % roles);
        s->bias = s->next++ % 2 != 0;
    } while (s->layer < c->layers && ((mha__part_role(s->role) >= MHA__FIRST_OF_LAYER) != (s->layer >= 0) ||
                                      mha__config_owner(c, s->layer) != s->layer));
    return s->layer < c->layers;
}

bool mha__weights_per_head(const mha__config *c, mha__role role)
{
    return mha__part_of(c, role)->per_head;
}

/* Replaces *data with a copy in the order of the model. */
static mha_status reorder(mha__weights *w, mha__role role, int64_t layer, bool bias, const float **data, mha_error *err)
{
    const int64_t count = mha__order_elements(w->config, role, layer, bias);
    const size_t bytes = (size_t)count * sizeof(float);
    if (w->check_only || !count || !*data) return MHA_OK;
    float *copy = mha__weights_keep(w, bytes);
    if (!copy) return mha__no_memory(err, bytes, "the rows of a tensor");
    mha__order_copy(w->config, role, layer, bias, *data, copy, false);
    *data = copy;
    return MHA_OK;
}

mha_status mha__weights_again(mha__weights *w, mha__role role, int64_t layer, const float **weight, mha_error *err)
{
    const mha_tensor *tensor = mha__weights_tensor(w, role, layer, false);
    *weight = NULL;
    if (!tensor) return MHA_OK;
    if (tensor->dtype != MHA_F32 || !mha_tensor_aligned(tensor))
        MHA__TRY(convert(w, tensor, weight, err));
    else
        *weight = tensor->data;
    return reorder(w, role, layer, false, weight, err);
}

void mha__weights_rest(const mha__weights *w, mha__role role, int64_t layer)
{
    const mha_tensor *tensor = w->check_only ? NULL : mha__weights_tensor(w, role, layer, false);
    if (tensor) mha__data_rest(w->shards->file, tensor);
}

mha_status mha__weights_part(mha__weights *weights, mha__role role, int64_t layer, mha_matrix *part, mha_error *err)
{
    const mha__part *p = mha__part_of(weights->config, role);
    const mha__part_kind kind = p->kind;
    *part = (mha_matrix){0};
    if (role == MHA__POSITIONS && weights->config->family->sines) return mha__sine_positions(weights, part, err);
    if (!exists(weights->config, role, layer)) return MHA_OK;
    if (p->optional && !mha__weights_tensor(weights, role, layer, false)) return MHA_OK;
    const int64_t rows = kind == MHA__PART_SCALAR ? 1 : dimension(weights->config, layer, p->rows);
    const wanted weight = wanted_of(weights->config, role, layer, false);
    part->out = rows;
    part->packed = kinds[kind].taps ? MHA_F32 : weights->packed;
    part->many_rows = !weights->config->family->causal; /* causal models also generate, one row at a time */
    part->transposed = kinds[kind].transposed;
    MHA__TRY(take(weights, role, layer, kinds[kind].weight, kinds[kind].old_weight, &weight, &part->weight, err));
    if (kinds[kind].plus_one) MHA__TRY(mha__weights_add_one(weights, rows, &part->weight, err));
    MHA__TRY(reorder(weights, role, layer, false, &part->weight, err));
    if (kind == MHA__PART_NORM_ONLY || kind == MHA__PART_HEAD_NORMS)
        return mha__weights_zeros(weights, rows * (weight.rank == 2 ? weight.shape[1] : 1), &part->bias, err);
    if (!has_bias(weights->config, p)) return MHA_OK;
    const wanted bias = wanted_of(weights->config, role, layer, true);
    MHA__TRY(take(weights, role, layer, kinds[kind].bias, kinds[kind].old_bias, &bias, &part->bias, err));
    return reorder(weights, role, layer, true, &part->bias, err);
}

mha_status mha__weights_missing(const mha__weights *weights, mha__role role, mha_error *err)
{
    const mha__part *p = mha__part_of(weights->config, role);
    char name[MHA__TENSOR_NAME];
    find(weights, role, -1, kinds[p->kind].weight, name);
    return missing(weights, name, err);
}

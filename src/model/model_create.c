/* model_create.c - creates a model: randomly initializes the tensors that its config requires, and opens the model from
 * memory. */
#include "mha/model_create.h"

#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "io/json/json.h"
#include "io/tensor_file.h"
#include "mha/rng.h"
#include "model/model_struct.h"
#include <float.h>
#include <math.h>
#include <string.h>

static const double DEFAULT_RANGE = 0.02; /* transformers' initializer_range of every supported family */

/* Tensors of a new model, which owns their memory. */
typedef struct creation {
    mha_named_tensor *list; /* [count]; NULL while sizes are measured */
    int64_t count;
    double range; /* standard deviation of the elements of a matrix */
    mha_rng rng;
} creation;

/* Returns false for parts that a new checkpoint does not contain: a tied tensor is stored under one name only, and new
 * models have no pooler. */
static bool is_made(const mha__config *c, mha__role role)
{
    if (role == MHA__POOLER || role == MHA__LOGIT_SCALE) return false;
    if (role == MHA__LM_HEAD) return !c->tied;
    if (role == MHA__LM_BIAS) return !c->tied || c->family->causal;
    if (role == MHA__LM_TIED_BIAS) return c->tied;
    return true;
}

static void fill(float *x, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = value;
}

/* Initializes one tensor. */
static mha_status initialize(creation *n, const mha__config *c, mha__role role, bool bias, const mha_named_tensor *t,
                             mha_error *err)
{
    const mha__part_kind kind = mha__part_of(c, role)->kind;
    const bool norm =
        kind == MHA__PART_NORM || kind == MHA__PART_NORM_ONLY || kind == MHA__PART_HEAD_NORMS || kind == MHA__PART_RMS;
    const bool residual = kind == MHA__PART_CONV1D;
    const int64_t elements = mha__shape_elements(t->rank, t->shape);
    double range = n->range;
    if (t->rank == 1 || norm || bias) {
        fill(t->data, elements, norm && !bias ? 1 : 0);
        return MHA_OK;
    }
    if (residual && (role == MHA__ATTN_OUT || role == MHA__DOWN)) range /= sqrt(2 * (double)c->layers);
    MHA__TRY(mha_rng_normal(&n->rng, 0, range, t->data, elements, err));
    if (role == MHA__WORDS && c->padding >= 0)
        memset((float *)t->data + c->padding * c->embed_width, 0, (size_t)c->embed_width * sizeof(float));
    return MHA_OK;
}

static mha_status add(mha__arena *arena, creation *n, const mha__config *c, const mha__tensor_step *at, mha_error *err)
{
    char name[MHA__TENSOR_NAME];
    mha_named_tensor t;
    if (!mha__weights_expected(c, at->role, at->layer, at->bias, name, &t)) return MHA_OK;
    size_t size;
    if (!mha__bytes(t.shape, t.rank, sizeof(float), &size)) return mha__no_memory(err, SIZE_MAX, name);
    const size_t bytes = strlen(name) + 1;
    char *own = mha__take(arena, 1, bytes);
    t.data = mha__take(arena, (size_t)mha__shape_elements(t.rank, t.shape), sizeof(float));
    t.name = own;
    const int64_t number = n->count++;
    if (!n->list) return MHA_OK;
    memcpy(own, name, bytes);
    n->list[number] = t;
    return initialize(n, c, at->role, at->bias, &t, err);
}

/* Allocates all tensors from the arena, and initializes them if the arena has memory. */
static mha_status walk(mha__arena *arena, creation *n, const mha__config *c, mha_error *err)
{
    n->count = 0;
    for (mha__tensor_step at = {0}; mha__tensor_each(c, &at);)
        if (is_made(c, at.role)) MHA__TRY(add(arena, n, c, &at, err));
    return MHA_OK;
}

/* Checks the padding row. Opening a model ignores an invalid row, but creating a model sets the elements of the row to
 * 0. */
static mha_status check_padding(const mha__config *c, mha_error *err)
{
    if (c->padding >= -1 && c->padding < c->vocab) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "config.json: pad_token_id must be from -1 to %lld (got %lld)",
                     (long long)c->vocab - 1, (long long)c->padding);
}

static mha_status read_range(mha_ctx *ctx, const char *text, double *range, mha_error *err)
{
    const mha__json *root = NULL;
    *range = DEFAULT_RANGE;
    MHA__TRY(mha__json_parse(ctx, "config.json", text, strlen(text), MHA__JSON_BOM, &root, err));
    const mha__json_obj o = {.json = root, .file = "config.json"};
    const mha_status status = mha__json_number(&o, "initializer_range", MHA__OPTIONAL, FLT_MIN, FLT_MAX, range, err);
    mha__json_free(root);
    return status;
}

/* Allocates the memory that the model owns: the list, then names and elements. */
static mha_status make(mha_ctx *ctx, const char *text, mha__config *c, uint64_t seed, creation *n, void **own,
                       mha_error *err)
{
    mha__arena arena = {0};
    MHA__TRY(check_padding(c, err));
    MHA__TRY(read_range(ctx, text, &n->range, err));
    MHA__TRY(walk(&arena, n, c, err));
    mha__take(&arena, (size_t)n->count, sizeof *n->list);
    arena.base = *own = arena.overflow ? NULL : mha__alloc(ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the weights of a new model");
    arena.used = 0;
    n->list = mha__take(&arena, (size_t)n->count, sizeof *n->list);
    mha_rng_manual_seed(&n->rng, seed);
    return walk(&arena, n, c, err);
}

/* Opens the model. Weights in memory do not require a folder; a given folder must have a valid tokenizer. */
static mha_status open_made(mha_ctx *ctx, const char *folder, const char *text, const creation *n, mha_model **out,
                            mha_error *err)
{
    const mha_model_options o = {
        .size = sizeof o, .tensors = n->list, .tensor_count = n->count, .config_json = text, .memory_only = 1};
    MHA__TRY(mha_model_open(ctx, folder, &o, out, err));
    if (!folder || (*out)->tokenizer) return MHA_OK;
    const mha_status status = mha_tokenizer_open((*out)->ctx, folder, &(*out)->tokenizer, err);
    if (status == MHA_OK) return MHA_OK;
    mha_model_free(*out);
    *out = NULL;
    return status;
}

mha_status mha_model_create(mha_ctx *given, const char *config_json, const mha_model_create_options *options,
                            mha_model **out, mha_error *err)
{
    mha_model_create_options o;
    creation n = {0};
    char *text = NULL;
    void *own = NULL;
    mha_ctx *ctx = given;
    if (!config_json || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_create: %s must not be NULL", out ? "config_json" : "out");
    *out = NULL;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_model_create_options", err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    mha__config *config = mha__alloc(ctx, sizeof *config); /* too large for some stacks */
    if (!config) return mha__no_memory(err, sizeof *config, "a config");
    mha_status status = mha__config_read(ctx, o.folder ? o.folder : "", config_json, config, &text, err);
    if (status == MHA_OK && config->family->one_side)
        status = mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_model_create: config must not be an encoder-decoder (got %s)",
                           config->family->name);
    if (status == MHA_OK && config->family->vision)
        status = mha__fail(err, MHA_ERR_UNSUPPORTED,
                           "mha_model_create: config must not be a CLIP model with two towers (got %s)",
                           config->family->name);
    if (status == MHA_OK) status = make(ctx, text, config, o.seed, &n, &own, err);
    mha__config_release(ctx, config);
    mha__free(ctx, config);
    if (status == MHA_OK) status = open_made(given, o.folder, text, &n, out, err);
    mha__free(ctx, text);
    if (status == MHA_OK)
        (*out)->own = own;
    else
        mha__free(ctx, own);
    return status;
}

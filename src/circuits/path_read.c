/* path_read.c - the receivers of paths: queries, keys, values and feed-forward outputs that a layer computes from the
 * changed residual stream, and the room and conditions of paths. */
#include "base/ctx.h"
#include "base/error.h"
#include "circuits/path.h"
#include "model/forward/observers.h"
#include <string.h>

/* ---- opening ---- */

static mha_status check(const mha_prompt_pair *pair, const char *function, mha_error *err)
{
    for (int64_t layer = 0; layer < pair->info->layers; layer++) {
        const mha_block *block = pair->model->block[layer];
        if (!block->pre_norm)
            return mha__fail(err, MHA_ERR_UNSUPPORTED,
                             "%s: model must be pre-norm (got %s, which is post-norm: a norm lies on every path "
                             "between its layers)",
                             function, pair->info->family);
        if (!block->attn->o)
            return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: model must have an output projection in every layer",
                             function);
    }
    return MHA_OK;
}

mha_status mha__path_open(const mha_prompt_pair *pair, mha_patch_direction direction, const char *function,
                          mha__path *path, mha_error *err)
{
    const int64_t T = pair->length, E = pair->width;
    int64_t widest = 0; /* head width */
    *path =
        (mha__path){.pair = pair, .base = mha__base_run(pair, direction), .source = mha__source_run(pair, direction)};
    MHA__TRY(check(pair, function, err));
    for (int64_t layer = 0; layer < pair->info->layers; layer++)
        widest = mha__max64(widest, mha__pair_attn(pair, layer)->options.head_dim);
    const size_t bytes = (size_t)(T * (3 * E + pair->qkv_width) + E * widest) * sizeof(float);
    path->write = mha__calloc(pair->ctx, 1, bytes);
    if (!path->write) return mha__no_memory(err, bytes, "a path");
    path->hidden = path->write + T * E;
    path->mlp = path->hidden + T * E;
    path->qkv = path->mlp + T * E;
    path->wo = path->qkv + T * pair->qkv_width;
    return MHA_OK;
}

void mha__path_close(mha__path *path)
{
    if (path->pair) mha__free(path->pair->ctx, path->write);
}

/* ---- a pass of one layer ---- */

static void keep(void *user, int64_t layer, mha__edit_site site, int64_t first, int64_t rows, float *x)
{
    const mha__path *p = user;
    const mha_prompt_pair *pair = p->pair;
    const int64_t width = site == MHA__EDIT_QKV ? mha__qkv_width(&mha__pair_attn(pair, layer)->options) : pair->width;
    const int64_t stride = site == MHA__EDIT_QKV ? pair->qkv_width : pair->width;
    float *to = site == MHA__EDIT_QKV ? p->qkv : site == MHA__EDIT_MLP_OUT ? p->mlp : NULL;
    for (int64_t r = 0; to && r < rows; r++)
        memcpy(to + (first + r) * stride, x + r * width, (size_t)width * sizeof *x);
}

/* Adds the change to resid_mid, and keeps the output of feed-forward. */
static void change_mid(void *user, int64_t layer, mha__edit_site site, int64_t first, int64_t rows, float *x)
{
    const mha__path *p = user;
    const int64_t E = p->pair->width;
    if (site == MHA__EDIT_MLP_OUT) keep(user, layer, site, first, rows, x);
    for (int64_t n = 0; site == MHA__EDIT_RESID_MID && n < rows * E; n++)
        x[n] += p->write[first * E + n];
}

typedef struct one_layer {
    mha__path path; /* first, since the functions above read it */
    int64_t layer;
} one_layer;

static int stop_after(void *user, int64_t entry, const float *x)
{
    const one_layer *one = user;
    (void)x;
    return entry > one->layer;
}

/* Runs a layer from `hidden` or, with the context of the base run, from its output projection. */
static mha_status run_layer(const mha__path *p, int64_t layer, bool from_context, mha__site_edit *edit, mha_error *err)
{
    const mha_prompt_pair *pair = p->pair;
    const int64_t width = mha__context_width(mha__pair_attn(pair, layer));
    one_layer one = {*p, layer};
    float *context = NULL;
    if (from_context) {
        const size_t bytes = (size_t)(pair->length * width) * sizeof *context;
        context = mha__alloc(pair->ctx, bytes);
        if (!context) return mha__no_memory(err, bytes, "a path");
        for (int64_t t = 0; t < pair->length; t++)
            memcpy(context + t * width, p->base->z + (layer * pair->length + t) * pair->z_width,
                   (size_t)width * sizeof *context);
    }
    edit->user = &one;
    const mha_model_input in = {.size = sizeof in,
                                .batch = 1,
                                .length = pair->length,
                                .first_layer = layer,
                                .hidden = p->hidden,
                                .context = context};
    const mha_model_output out = {.size = sizeof out, .on_hidden = stop_after, .user = &one};
    mha_error own = {0};
    const mha_status status = mha__model_forward_edited(pair->model, &in, &out, edit, &own);
    mha__free(pair->ctx, context);
    if (status == MHA_OK || status == MHA_ERR_CANCELED) return MHA_OK;
    if (err) *err = own;
    return status;
}

/* ---- receivers ---- */

/* Sets `hidden` to the input of a layer in the base run plus the change. */
static void add_change(const mha__path *p, int64_t layer)
{
    const int64_t count = p->pair->length * p->pair->width;
    const float *x = p->base->resid + layer * count;
    for (int64_t n = 0; n < count; n++)
        p->hidden[n] = x[n] + p->write[n];
}

mha_status mha__path_to_layer(const mha__path *p, int64_t layer, mha_error *err)
{
    mha__site_edit edit = {.change = keep};
    add_change(p, layer);
    return run_layer(p, layer, false, &edit, err);
}

mha_status mha__path_to_mlp(const mha__path *p, int64_t layer, mha_error *err)
{
    mha__site_edit edit = {.change = change_mid};
    const int64_t count = p->pair->length * p->pair->width;
    memcpy(p->hidden, p->base->resid + layer * count, (size_t)count * sizeof *p->hidden);
    return run_layer(p, layer, true, &edit, err);
}

void mha__path_to_logits(const mha__path *p)
{
    add_change(p, p->pair->info->layers);
}

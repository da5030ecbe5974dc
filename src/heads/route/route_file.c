/* route_file.c - a router in a safetensors file, and the digests that say what model it is of. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "heads/data/model_digests.h"
#include "heads/edit/prune_model.h"
#include "io/safetensors/named_tensors.h"
#include "io/tensor_file.h"
#include "model/route.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define VERSION "1"

/* ---- writing ---- */

static mha_status write_file(const mha_router *r, const char *path, const char *weights, int overwrite, mha_error *err)
{
    const mha_metadata metadata[] = {{.key = "mha.router", .value = VERSION}, {.key = "mha.weights", .value = weights}};
    const mha_tensors_writer_options o = {
        .size = sizeof o, .overwrite = overwrite, .metadata = metadata, .metadata_count = 2};
    const int64_t count = 2 * r->layers;
    mha_tensor *list = mha__calloc(r->ctx, (size_t)count, sizeof *list);
    mha_tensors_writer *writer = NULL;
    if (!list) return mha__no_memory(err, (size_t)count * sizeof *list, "the list of a router's tensors");
    mha_status status = MHA_OK;
    for (int64_t n = 0; n < count && status == MHA_OK; n++)
        status = mha__named_view(&r->list[n], &list[n], err);
    if (status == MHA_OK) status = mha_tensors_writer_create(r->ctx, path, list, count, &o, &writer, err);
    for (int64_t n = 0; n < count && status == MHA_OK; n++)
        status = mha_tensors_writer_put(writer, n, list[n].data, list[n].bytes, err);
    if (status == MHA_OK) status = mha_tensors_writer_finish(writer, err);
    mha_tensors_writer_free(writer);
    mha__free(r->ctx, list);
    return status;
}

/* What the model was read from, as metadata. */
static mha_status digests_text(const mha_model *model, char **text, mha_error *err)
{
    mha__json_writer w = {.ctx = model->ctx, .indent = 2};
    const mha_status status = mha__model_digests(model, &w, err);
    if (status == MHA_OK) return mha__json_written(&w, "a router's metadata", text, NULL, err);
    mha__json_written(&w, "a router's metadata", NULL, NULL, NULL);
    return status;
}

mha_status mha_router_save(const mha_router *router, const mha_model *model, const char *path, int overwrite,
                           mha_error *err)
{
    if (!router || !model || !path)
        return mha__fail(err, MHA_ERR_ARG, "mha_router_save: %s is NULL",
                         !router  ? "router"
                         : !model ? "model"
                                  : "path");
    MHA__TRY(mha__router_check(router, model, err));
    char *text = NULL;
    mha_status status = digests_text(model, &text, err);
    if (status == MHA_OK) status = write_file(router, path, text, overwrite, err);
    mha__free(model->ctx, text);
    return status;
}

/* ---- reading ---- */

static mha_status check_version(const mha_file *file, mha_error *err)
{
    size_t bytes = 0;
    const char *version = mha__metadata_find(file, "mha.router", &bytes), *path = mha_file_path(file);
    if (version && strcmp(version, VERSION) == 0) return MHA_OK;
    if (!version)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: no router: it has no \"mha.router\" in its metadata",
                         mha__quote(&(mha__quoted){0}, path, strlen(path)));
    return mha__fail(err, MHA_ERR_FORMAT, "%s: mha.router is \"%s\", not \"" VERSION "\"",
                     mha__quote(&(mha__quoted){0}, path, strlen(path)), mha__quote(&(mha__quoted){0}, version, bytes));
}

/* Every file of the model must be one that the router was fitted to. */
static mha_status compare(const mha_file *file, const mha__json *wanted, const mha__json *own, mha_error *err)
{
    const char *path = mha_file_path(file);
    for (mha__json_step i = {0}; mha__json_each(own, &i);) {
        const char *name = mha__json_as_text(i.key);
        const mha__json *other = mha__json_get(wanted, name);
        if (other && mha__json_equal(i.value, other)) continue;
        const char *hex = mha__json_as_text(other);
        return mha__fail(err, MHA_ERR_FORMAT,
                         "%s: the router was fitted to other weights: %s of sha256 %.16s..., this one is %.16s...",
                         mha__quote(&(mha__quoted){0}, path, strlen(path)),
                         mha__quote(&(mha__quoted){0}, name, strlen(name)),
                         hex ? mha__quote(&(mha__quoted){0}, hex, strlen(hex)) : "unknown", mha__json_as_text(i.value));
    }
    return MHA_OK;
}

static mha_status check_weights(const mha_file *file, const mha_model *model, mha_error *err)
{
    size_t bytes = 0;
    const char *text = mha__metadata_find(file, "mha.weights", &bytes), *path = mha_file_path(file);
    const mha__json *wanted = NULL, *own = NULL;
    char *digests = NULL;
    if (!text)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: no \"mha.weights\" in its metadata",
                         mha__quote(&(mha__quoted){0}, path, strlen(path)));
    MHA__TRY(mha__json_parse(model->ctx, "mha.weights of a router", text, bytes, 0, &wanted, err));
    mha_status status = digests_text(model, &digests, err);
    if (status == MHA_OK) status = mha__json_parse(model->ctx, "digests", digests, strlen(digests), 0, &own, err);
    if (status == MHA_OK) status = compare(file, wanted, own, err);
    mha__free(model->ctx, digests);
    mha__json_free(own);
    mha__json_free(wanted);
    return status;
}

/* The file's tensors as the caller's list; the data are copied, as they may lie anywhere. */
static mha_status create(const mha_file *file, const mha_model *model, mha_router **out, mha_error *err)
{
    const int64_t count = mha_file_count(file);
    size_t bytes = 0;
    if (count != 2 * model->config.layers)
        return mha__fail(err, MHA_ERR_FORMAT, "%lld tensors, a router of %lld layers has %lld", (long long)count,
                         (long long)model->config.layers, 2 * (long long)model->config.layers);
    for (int64_t n = 0; n < count; n++) {
        const mha_tensor *t = mha_file_tensor(file, n);
        if (t->rank < 1 || t->rank > 2 || t->dtype != MHA_F32)
            return mha__fail(err, MHA_ERR_FORMAT, "%s is no matrix or vector of f32",
                             mha__quote(&(mha__quoted){0}, t->name, strlen(t->name)));
        bytes += (t->bytes + 63) & ~(size_t)63;
    }
    char *data = mha__alloc(model->ctx, bytes ? bytes : 1);
    mha_named_tensor *list = mha__calloc(model->ctx, (size_t)count, sizeof *list);
    mha_status status = data && list ? MHA_OK : mha__no_memory(err, bytes, "a router's numbers");
    char *at = data;
    for (int64_t n = 0; status == MHA_OK && n < count; n++) {
        const mha_tensor *t = mha_file_tensor(file, n);
        list[n] = (mha_named_tensor){.name = t->name, .dtype = MHA_F32, .rank = t->rank, .data = at};
        memcpy(list[n].shape, t->shape, (size_t)t->rank * sizeof *t->shape);
        memcpy(at, t->data, t->bytes);
        at += (t->bytes + 63) & ~(size_t)63;
    }
    if (status == MHA_OK) status = mha_router_create(model, list, count, out, err);
    mha__free(model->ctx, list);
    mha__free(model->ctx, data);
    return status;
}

/* What is wrong with the numbers is wrong with the file. */
static mha_status read_numbers(const mha_file *file, const mha_model *model, mha_router **out, mha_error *err)
{
    mha_error why = {0};
    const char *path = mha_file_path(file);
    const mha_status status = create(file, model, out, &why);
    if (status == MHA_OK) return MHA_OK;
    return mha__fail(err, status == MHA_ERR_ARG ? MHA_ERR_FORMAT : status, "%s: %s",
                     mha__quote(&(mha__quoted){0}, path, strlen(path)), why.message);
}

mha_status mha_router_open(const mha_model *model, const char *path, const mha_router_options *options,
                           mha_router **out, mha_error *err)
{
    mha_router_options o;
    mha_file *file = NULL;
    char place[PATH_MAX];
    if (!model || !out) return mha__fail(err, MHA_ERR_ARG, "mha_router_open: %s is NULL", model ? "out" : "model");
    *out = NULL;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_router_options", err));
    if (!path) {
        MHA__TRY(mha__shards_folder(&model->shards, place, sizeof place - sizeof "/router.safetensors", err));
        strcat(place, "/router.safetensors");
        path = place;
    }
    MHA__TRY(mha_file_open(model->ctx, path, NULL, &file, err));
    mha_status status = check_version(file, err);
    if (status == MHA_OK) status = read_numbers(file, model, out, err);
    if (status == MHA_OK && !o.no_digest) status = check_weights(file, model, err);
    if (status != MHA_OK) {
        mha_router_free(*out);
        *out = NULL;
    }
    mha_file_free(file);
    return status;
}

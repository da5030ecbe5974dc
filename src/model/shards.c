/* shards.c - opening the weights of a folder.
 *
 * The index is a stranger's word: its file names must be bare names, and what it says of a tensor is compared with the
 * file itself, in both directions, before anything is used. Its sizes are not read.
 */
#include "model/shards.h"
#include "base/ctx.h"
#include "base/error.h"
#include "io/json.h"
#include "io/limits.h"
#include "io/source.h"
#include "io/tensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

static mha_status open_one(mha__shards *s, const char *folder, const char *name, const mha_file_options *options,
                           mha_file **file, mha_error *err)
{
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = mha__alloc(s->ctx, bytes);
    if (!path) return mha__no_memory(err, bytes, "a file name");
    snprintf(path, bytes, "%s/%s", folder, name);
    const mha_status status = mha_file_open(s->ctx, path, options, file, err);
    mha__free(s->ctx, s->path);
    s->path = path;
    return status;
}

/* ---- the index ---- */

/* Gives each file of the map a number: names holds file name -> number, s->place tensor -> number. */
static mha_status number_files(mha__shards *s, const json_t *map, json_t *names, mha_error *err)
{
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)map, tensor, value)
    {
        const char *name = json_string_value(value);
        mha__quoted shown = {0};
        if (!name)
            return mha__fail(err, MHA_ERR_FORMAT, INDEX ": weight_map.%s: want a file name, got %s",
                             mha__quote(&shown, tensor, strlen(tensor)), mha__json_show(&(mha__quoted){0}, value));
        if (!mha__bare_name(name, json_string_length(value)))
            return mha__fail(err, MHA_ERR_FORMAT, INDEX ": weight_map: \"%s\" is not the name of a file in this folder",
                             mha__quote(&shown, name, json_string_length(value)));
        json_t *number = json_object_get(names, name);
        if (!number && json_object_size(names) >= MHA__SHARDS)
            return mha__fail(err, MHA_ERR_FORMAT, INDEX ": more than %d files", MHA__SHARDS);
        if (!number) json_object_set_new(names, name, number = json_integer((json_int_t)json_object_size(names)));
        if (!number || json_object_set(s->place, tensor, number) != 0)
            return mha__no_memory(err, 1, "the index of weights");
    }
    if (json_object_size(names) == 0) return mha__fail(err, MHA_ERR_FORMAT, INDEX ": weight_map is empty");
    return MHA_OK;
}

/* Every tensor of file number n must be where the index says. */
static mha_status compare(const mha__shards *s, int64_t n, const char *name, mha_error *err)
{
    for (int64_t i = 0; i < mha_file_count(s->file[n]); i++) {
        const char *tensor = mha_file_tensor(s->file[n], i)->name;
        const json_t *place = json_object_get(s->place, tensor);
        mha__quoted shown = {0}, file = {0};
        if (!place || json_integer_value(place) != n)
            return mha__fail(err, MHA_ERR_FORMAT, INDEX ": tensor \"%s\" is in \"%s\", but weight_map has it %s",
                             mha__quote(&shown, tensor, strlen(tensor)), mha__quote(&file, name, strlen(name)),
                             place ? "in another file" : "nowhere");
    }
    return MHA_OK;
}

static mha_status check_places(const mha__shards *s, mha_error *err)
{
    const char *tensor;
    json_t *place;
    json_object_foreach(s->place, tensor, place)
    {
        if (!mha_file_find(s->file[json_integer_value(place)], tensor))
            return mha__fail(err, MHA_ERR_FORMAT, INDEX ": tensor \"%s\" is not in the file that weight_map names",
                             mha__quote(&(mha__quoted){0}, tensor, strlen(tensor)));
    }
    return MHA_OK;
}

static mha_status open_files(mha__shards *s, const char *folder, const json_t *names, const mha_file_options *options,
                             mha_error *err)
{
    const char *name;
    json_t *number;
    const size_t bytes = json_object_size(names) * sizeof(mha_file *);
    s->file = mha__calloc(s->ctx, json_object_size(names), sizeof(mha_file *));
    if (!s->file) return mha__no_memory(err, bytes, "the list of weight files");
    s->count = (int64_t)json_object_size(names);
    json_object_foreach((json_t *)names, name, number)
    {
        const int64_t n = json_integer_value(number);
        MHA__TRY(open_one(s, folder, name, options, &s->file[n], err));
        MHA__TRY(compare(s, n, name, err));
    }
    return check_places(s, err);
}

static mha_status open_index(mha__shards *s, const char *folder, const json_t *root, const mha_file_options *options,
                             mha_error *err)
{
    mha__json_obj map = {0};
    MHA__TRY(mha__json_object(&(mha__json_obj){.json = root, .file = INDEX}, "weight_map", MHA__REQUIRED, &map, err));
    json_t *names = json_object();
    s->place = json_object();
    mha_status status =
        names && s->place ? number_files(s, map.json, names, err) : mha__no_memory(err, 1, "the index of weights");
    if (status == MHA_OK) status = open_files(s, folder, names, options, err);
    json_decref(names);
    return status;
}

/* ---- the whole ---- */

static mha_status open_single(mha__shards *s, const char *folder, const mha_file_options *options, mha_error *err)
{
    s->file = mha__calloc(s->ctx, 1, sizeof(mha_file *));
    if (!s->file) return mha__no_memory(err, sizeof(mha_file *), "the list of weight files");
    s->count = 1;
    return open_one(s, folder, SINGLE, options, &s->file[0], err);
}

static mha_status open_sharded(mha__shards *s, const char *folder, const mha_file_options *options, mha_error *err)
{
    json_t *root = NULL;
    MHA__TRY(mha__json_read(s->ctx, folder, INDEX, MHA__JSON_BYTES, &root, err));
    const mha_status status = open_index(s, folder, root, options, err);
    json_decref(root);
    return status == MHA_ERR_FORMAT ? mha__in_folder(status, folder, INDEX, err) : status;
}

mha_status mha__shards_open(mha_ctx *ctx, const char *folder, const mha_file_options *options, mha__shards *shards,
                            mha_error *err)
{
    *shards = (mha__shards){.ctx = ctx};
    const bool several = !mha__source_exists(folder, SINGLE) && mha__source_exists(folder, INDEX);
    const mha_status status = (several ? open_sharded : open_single)(shards, folder, options, err);
    if (status != MHA_OK) mha__shards_close(shards);
    return status;
}

void mha__shards_close(mha__shards *shards)
{
    for (int64_t i = 0; shards->file && i < shards->count; i++)
        mha_file_free(shards->file[i]);
    mha__free(shards->ctx, shards->file);
    mha__free(shards->ctx, shards->path);
    mha__free(shards->ctx, shards->instead);
    mha__free(shards->ctx, shards->shapes);
    json_decref(shards->place);
    *shards = (mha__shards){.ctx = shards->ctx};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const mha_tensor *)a)->name, ((const mha_tensor *)b)->name);
}

mha_status mha__shards_replace(mha__shards *s, const mha_named_tensor *tensors, int64_t count, mha_error *err)
{
    mha__quoted q = {0};
    if (count < 0 || (count && !tensors))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_options: tensor_count is %lld, tensors is %s", (long long)count,
                         tensors ? "given" : "NULL");
    if (!count) return MHA_OK;
    s->instead = mha__calloc(s->ctx, (size_t)count, sizeof *s->instead);
    s->shapes = mha__calloc(s->ctx, (size_t)count, sizeof *s->shapes);
    if (!s->instead || !s->shapes) return mha__no_memory(err, (size_t)count * sizeof *s->instead, "a list of tensors");
    for (int64_t n = 0; n < count; n++) {
        MHA__TRY(mha__named_view(&tensors[n], &s->instead[n], err));
        memcpy(s->shapes[n], tensors[n].shape, sizeof s->shapes[n]);
        s->instead[n].shape = s->shapes[n];
    }
    qsort(s->instead, (size_t)count, sizeof *s->instead, by_name);
    s->instead_count = count;
    for (int64_t n = 1; n < count; n++)
        if (by_name(&s->instead[n - 1], &s->instead[n]) == 0)
            return mha__fail(err, MHA_ERR_ARG, "mha_model_options: two tensors are named \"%s\"",
                             mha__quote(&q, s->instead[n].name, strlen(s->instead[n].name)));
    return MHA_OK;
}

static const mha_tensor *find_in_files(const mha__shards *s, const char *name)
{
    if (!s->place) return mha_file_find(s->file[0], name);
    const json_t *place = json_object_get(s->place, name);
    return place ? mha_file_find(s->file[json_integer_value(place)], name) : NULL;
}

bool mha__shards_file_has(const mha__shards *shards, const char *name)
{
    return find_in_files(shards, name) != NULL;
}

const mha_tensor *mha__shards_find(const mha__shards *shards, const char *name)
{
    const mha_tensor key = {.name = name};
    const size_t count = (size_t)shards->instead_count;
    const mha_tensor *instead = count ? bsearch(&key, shards->instead, count, sizeof key, by_name) : NULL;
    return instead ? instead : find_in_files(shards, name);
}

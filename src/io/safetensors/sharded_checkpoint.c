/* sharded_checkpoint.c - opens the weights of a folder as one file: model.safetensors, or the shards listed in an
 * index.
 *
 * The index is untrusted: its file names must be bare names. Before any data is used, the entries of the index are
 * compared with the tensors of the files, in both directions. Sizes in the index are ignored. */
#include "base/ctx.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "io/input_limits.h"
#include "io/json/json.h"
#include "io/tensor_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

/* State while opening a folder with an index. */
typedef struct opening {
    mha_file *whole;
    const mha_file_options *options;
    char *folder, *index; /* path of the folder, and name of the index in it */
    mha__quoted name;     /* name of the index, for messages */
    const mha__json *map; /* the object weight_map, which maps tensor names to file names */
    int32_t *place;       /* [tensors of the map] file index of each tensor */
    const char **names;   /* [files] file names, in the order of first occurrence in the map */
    int64_t files;
} opening;

static mha_status no_index(mha_error *err)
{
    return mha__no_memory(err, 0, "the index of a checkpoint");
}

/* ---- the index ---- */

/* An entry of the map: the file name of a tensor, and the number of the entry. */
typedef struct listed {
    const char *file;
    int32_t number;
} listed;

static int by_file(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    const int order = strcmp(x->file, y->file);
    return order ? order : x->number < y->number ? -1 : x->number > y->number;
}

static mha_status list_map(const opening *o, listed *list, mha_error *err)
{
    for (mha__json_step i = {0}; mha__json_each(o->map, &i);) {
        const char *file = mha__json_as_text(i.value);
        mha__quoted shown = {0};
        if (!file)
            return mha__fail(err, MHA_ERR_FORMAT, "%s: weight_map.%s must be a file name (got %s)", o->name.text,
                             mha__quote(&shown, mha__json_as_text(i.key), mha__json_bytes(i.key)),
                             mha__json_show(&(mha__quoted){0}, i.value));
        if (!mha__bare_name(file, mha__json_bytes(i.value)))
            return mha__fail(err, MHA_ERR_FORMAT, "%s: weight_map must name files in this folder (got \"%s\")",
                             o->name.text, mha__quote(&shown, file, mha__json_bytes(i.value)));
        list[i.index] = (listed){.file = file, .number = (int32_t)i.index};
    }
    return MHA_OK;
}

/* Numbers the files in the order of their first tensors. `list` is sorted by file name. Each place is first set to the
 * index of the first tensor in the same file, then, in map order, to the number of that file. */
static mha_status number_files(opening *o, const listed *list, size_t count, mha_error *err)
{
    for (size_t i = 0, first = 0; i < count; i++) {
        if (strcmp(list[i].file, list[first].file) != 0) first = i;
        o->place[list[i].number] = list[first].number;
    }
    for (mha__json_step i = {0}; mha__json_each(o->map, &i);) {
        const bool known = o->place[i.index] != (int32_t)i.index;
        if (!known && o->files == MHA__SHARDS)
            return mha__fail(err, MHA_ERR_FORMAT, "%s: weight_map must name at most %d files", o->name.text,
                             MHA__SHARDS);
        if (!known) o->names[o->files] = mha__json_as_text(i.value);
        o->place[i.index] = known ? o->place[o->place[i.index]] : (int32_t)o->files++;
    }
    return MHA_OK;
}

/* Reads the map: sets `place` and `names`. */
static mha_status read_map(opening *o, mha_error *err)
{
    mha_ctx *ctx = o->whole->ctx;
    const size_t count = mha__json_size(o->map);
    if (count == 0) return mha__fail(err, MHA_ERR_FORMAT, "%s: weight_map must not be empty", o->name.text);
    if (count > MHA__INDEX_TENSORS)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: weight_map must have at most %zu tensors (got %zu)", o->name.text,
                         MHA__INDEX_TENSORS, count);
    listed *list = mha__calloc(ctx, count, sizeof *list);
    o->place = mha__calloc(ctx, count, sizeof *o->place);
    o->names = mha__calloc(ctx, count < MHA__SHARDS ? count : MHA__SHARDS, sizeof *o->names);
    mha_status status = list && o->place && o->names ? list_map(o, list, err) : no_index(err);
    if (status == MHA_OK) qsort(list, count, sizeof *list, by_file);
    if (status == MHA_OK) status = number_files(o, list, count, err);
    mha__free(ctx, list);
    return status;
}

/* Checks that the index assigns every tensor in file n to that file. */
static mha_status compare(const opening *o, int64_t n, mha_error *err)
{
    const mha_file *file = o->whole->shard[n];
    for (int64_t i = 0; i < mha_file_count(file); i++) {
        const char *tensor = mha_file_tensor(file, i)->name;
        const char *place = mha__json_as_text(mha__json_get(o->map, tensor));
        mha__quoted shown = {0}, quoted = {0}, entry = {0};
        if (!place || strcmp(place, o->names[n]) != 0)
            return mha__fail(err, MHA_ERR_FORMAT,
                             "%s: weight_map[\"%s\"] must be \"%s\", which contains the tensor (got %s%s%s)",
                             o->name.text, mha__quote(&shown, tensor, strlen(tensor)),
                             mha__quote(&quoted, o->names[n], strlen(o->names[n])), place ? "\"" : "",
                             place ? mha__quote(&entry, place, strlen(place)) : "no entry", place ? "\"" : "");
    }
    return MHA_OK;
}

static mha_status check_places(const opening *o, mha_error *err)
{
    for (mha__json_step i = {0}; mha__json_each(o->map, &i);) {
        const char *tensor = mha__json_as_text(i.key);
        if (!mha_file_find(o->whole->shard[o->place[i.index]], tensor))
            return mha__fail(err, MHA_ERR_FORMAT, "%s: tensor \"%s\" must be in the file that weight_map names",
                             o->name.text, mha__quote(&(mha__quoted){0}, tensor, strlen(tensor)));
    }
    return MHA_OK;
}

/* Allocates "FOLDER/NAME" in context memory; NULL on failure. */
static char *join(mha_ctx *ctx, const char *folder, const char *name)
{
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = mha__alloc(ctx, bytes);
    if (path) snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

static mha_status open_shard(const opening *o, const char *name, mha_file **file, mha_error *err)
{
    mha_ctx *ctx = o->whole->ctx;
    char *path = join(ctx, o->folder, name);
    if (!path) return mha__no_memory(err, 0, "a file name");
    const mha_status status = mha_file_open(ctx, path, o->options, file, err);
    mha__free(ctx, path);
    return status;
}

static mha_status open_shards(const opening *o, mha_error *err)
{
    mha_file *f = o->whole;
    f->shard = mha__calloc(f->ctx, (size_t)o->files, sizeof(mha_file *));
    if (!f->shard) return no_index(err);
    f->shard_count = o->files;
    for (int64_t n = 0; n < o->files; n++) {
        MHA__TRY(open_shard(o, o->names[n], &f->shard[n], err));
        MHA__TRY(compare(o, n, err));
    }
    return check_places(o, err);
}

/* ---- merging into one file ---- */

mha_status mha__file_join(mha_file *f, const mha_file *const *parts, int64_t part_count, mha_error *err)
{
    size_t count = 0;
    for (int64_t n = 0; n < part_count; n++)
        count += (size_t)parts[n]->count;
    f->records = mha__calloc(f->ctx, count ? count : 1, sizeof *f->records);
    if (!f->records) return mha__no_memory(err, count * sizeof *f->records, "the list of tensors");
    for (int64_t n = 0; n < part_count; n++)
        for (int64_t i = 0; i < parts[n]->count; i++)
            f->records[f->count++] = parts[n]->records[i];
    qsort(f->records, count, sizeof *f->records, mha__record_by_name);
    for (size_t i = 1; i < count; i++)
        if (mha__record_by_name(&f->records[i - 1], &f->records[i]) == 0)
            return mha__fail(
                err, MHA_ERR_FORMAT, "tensor \"%s\" must be in one file (got two)",
                mha__quote(&(mha__quoted){0}, f->records[i].tensor.name, strlen(f->records[i].tensor.name)));
    return MHA_OK;
}

static int by_key(const void *a, const void *b)
{
    const mha__metadata *x = a, *y = b;
    const int order = strcmp(x->key, y->key);
    return order ? order : x->shard < y->shard ? -1 : x->shard > y->shard;
}

/* Merges the metadata; if several files have a key, the value in the last file is used. */
static mha_status join_metadata(mha_file *f, mha_error *err)
{
    size_t count = 0;
    for (int64_t n = 0; n < f->shard_count; n++)
        count += (size_t)f->shard[n]->metadata_count;
    if (count == 0) return MHA_OK;
    mha__metadata *all = f->metadata = mha__calloc(f->ctx, count, sizeof *all);
    if (!all) return mha__no_memory(err, count * sizeof *all, "the metadata");
    for (int64_t n = 0; n < f->shard_count; n++)
        for (int64_t i = 0; i < f->shard[n]->metadata_count; i++) {
            *all = f->shard[n]->metadata[i];
            all++->shard = n;
        }
    qsort(f->metadata, count, sizeof *f->metadata, by_key);
    for (size_t i = 0; i < count; i++)
        if (i + 1 == count || strcmp(f->metadata[i].key, f->metadata[i + 1].key) != 0)
            f->metadata[f->metadata_count++] = f->metadata[i];
    return MHA_OK;
}

static mha_status open_listed(opening *o, const mha__json *root, mha_error *err)
{
    mha__json_obj map = {0};
    const mha__json_obj top = {.json = root, .file = o->name.text};
    MHA__TRY(mha__json_object(&top, "weight_map", MHA__REQUIRED, &map, err));
    o->map = map.json;
    mha_status status = read_map(o, err);
    if (status == MHA_OK) status = open_shards(o, err);
    mha__free(o->whole->ctx, o->place);
    mha__free(o->whole->ctx, o->names);
    if (status == MHA_OK) status = mha__file_join(o->whole, (const mha_file *const *)o->whole->shard, o->files, err);
    return status == MHA_OK ? join_metadata(o->whole, err) : status;
}

/* Opens the index o->index of o->folder. */
static mha_status open_index(opening *o, mha_error *err)
{
    const mha__json *root = NULL;
    mha__quote(&o->name, o->index, strlen(o->index));
    mha_status status = mha__json_read(o->whole->ctx, o->folder, o->index, MHA__INDEX_BYTES, &root, err);
    if (status == MHA_OK) status = open_listed(o, root, err);
    mha__json_free(root);
    return status == MHA_ERR_FORMAT ? mha__in_folder(status, o->folder, o->index, err) : status;
}

/* ---- opening a checkpoint ---- */

/* Splits "FOLDER/INDEX" in place. */
static void split(char *path, opening *o)
{
    static char here[] = ".", root[] = "/";
    char *slash = strrchr(path, '/');
    o->index = slash ? slash + 1 : path;
    o->folder = !slash ? here : slash == path ? root : path;
    if (slash) *slash = '\0';
}

/* Opens the checkpoint whose index is `path`, a string in context memory that is modified. */
static mha_status open_sharded(mha_ctx *ctx, char *path, const mha_file_options *options, mha_file **out,
                               mha_error *err)
{
    opening o = {.options = options};
    mha_status status = mha__file_create(ctx, path, &o.whole, err);
    if (status == MHA_OK) {
        o.whole->format = "safetensors";
        split(path, &o);
        status = open_index(&o, err);
    }
    if (status == MHA_OK)
        *out = o.whole;
    else
        mha_file_free(o.whole);
    return status;
}

/* Returns the path of the file that contains a folder's weights, or a copy of `path` if it is not a folder. */
static char *find_file(mha_ctx *ctx, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        const size_t bytes = strlen(path) + 1;
        char *copy = mha__alloc(ctx, bytes);
        return copy ? memcpy(copy, path, bytes) : NULL;
    }
    const bool several = !mha__source_exists(path, SINGLE) && mha__source_exists(path, INDEX);
    return join(ctx, path, several ? INDEX : SINGLE);
}

mha_status mha_checkpoint_open(mha_ctx *ctx, const char *path, const mha_file_options *options, mha_file **out,
                               mha_error *err)
{
    if (!out || !path)
        return mha__fail(err, MHA_ERR_ARG, "mha_checkpoint_open: %s must not be NULL", out ? "path" : "out");
    *out = NULL;
    mha_file_options o;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_file_options", err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    char *file = find_file(ctx, path);
    if (!file) return mha__no_memory(err, 0, "a file name");
    const mha_status status =
        mha__name_ends(file, ".json") ? open_sharded(ctx, file, &o, out, err) : mha_file_open(ctx, file, &o, out, err);
    mha__free(ctx, file);
    return status;
}

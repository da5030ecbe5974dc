/* gguf_model.c - gives the tensors of a GGUF file the names and layouts of a family. */
#include "model/gguf/gguf_model.h"

#include "base/ctx.h"
#include "base/size.h"
#include "io/derived_tensor.h"
#include "io/gguf/gguf.h"
#include "io/input_limits.h"
#include "layer/block/feed_forward.h"
#include "model/gguf/gguf_config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 160 };

typedef struct renaming {
    mha_file *file;
    const mha__gguf_arch *arch;
    int64_t heads, kv_heads, experts, layers;
    mha__record *records; /* [count] of the file, with a record for each expert */
    int64_t count;
    mha_error *err;
} renaming;

static mha_status fail(const renaming *r, const mha_tensor *t, const char *rule, const char *got)
{
    const char *path = r->file->path;
    mha__quoted name = {0}, file = {0};
    return mha__fail(r->err, MHA_ERR_FORMAT, "%s: tensor \"%s\" must %s (got %s)",
                     mha__quote(&file, path, strlen(path)), mha__quote(&name, t->name, strlen(t->name)), rule, got);
}

/* Returns memory that is freed with the file. */
static mha_status memory_of(const renaming *r, size_t bytes, void **memory)
{
    *memory = mha__file_memory(r->file, bytes);
    return *memory ? MHA_OK : mha__no_memory(r->err, bytes, "a tensor of a GGUF file");
}

/* ---- layouts ---- */

/* Replaces the tensor with a copy in f32. */
static mha_status widen(const renaming *r, mha_tensor *t, float **elements)
{
    void *memory;
    const size_t bytes = (size_t)t->elements * sizeof(float);
    MHA__TRY(memory_of(r, bytes, &memory));
    MHA__TRY(mha_tensor_read(t, MHA_F32, memory, r->err));
    *elements = memory;
    t->data = memory;
    t->dtype = MHA_F32;
    t->dtype_name = "F32";
    t->bytes = bytes;
    return MHA_OK;
}

/* Copies the rows of q or k: the pairs of a head, which are neighbors in the file, become half a head apart. */
static mha_status undo_pairs(const renaming *r, mha_tensor *t, int64_t heads)
{
    const int64_t rows = t->rank ? t->shape[0] : 0;
    char *to, got[40];
    float *wide;
    void *memory;
    snprintf(got, sizeof got, "%lld rows", (long long)rows);
    if (t->rank < 1 || t->rank > 2 || rows % (2 * heads))
        return fail(r, t, "have an even number of rows per head", got);
    if (t->rank == 1 && !mha_dtype_size(t->dtype)) MHA__TRY(widen(r, t, &wide)); /* blocks span several heads */
    const size_t row = t->bytes / (size_t)rows;
    const int64_t half = rows / heads / 2;
    MHA__TRY(memory_of(r, t->bytes, &memory));
    to = memory;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < 2 * half; i++)
            memcpy(to + (size_t)(2 * half * h + i) * row,
                   (const char *)t->data + (size_t)(2 * half * h + i % half * 2 + i / half) * row, row);
    t->data = to;
    return MHA_OK;
}

static mha_status subtract_one(const renaming *r, mha_tensor *t)
{
    float *x = NULL;
    MHA__TRY(widen(r, t, &x));
    for (int64_t i = 0; i < t->elements; i++)
        x[i] -= 1;
    return MHA_OK;
}

/* Copies the elements of a matrix to the transposed matrix. */
static mha_status transpose(const renaming *r, mha_tensor *t)
{
    float *wide;
    void *memory;
    if (t->rank != 2) return fail(r, t, "be a matrix", "another rank");
    if (!mha_dtype_size(t->dtype)) MHA__TRY(widen(r, t, &wide));
    const size_t each = mha_dtype_size(t->dtype);
    const int64_t rows = t->shape[0], columns = t->shape[1];
    MHA__TRY(memory_of(r, t->bytes, &memory));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            memcpy((char *)memory + (size_t)(j * rows + i) * each,
                   (const char *)t->data + (size_t)(i * columns + j) * each, each);
    t->data = memory;
    int64_t *shape = r->file->shapes + (t->shape - r->file->shapes);
    shape[0] = columns;
    shape[1] = rows;
    return MHA_OK;
}

static mha_status change(const renaming *r, mha_tensor *t, mha__gguf_change how, bool bias)
{
    if (how == MHA__GGUF_ROWS_Q) return undo_pairs(r, t, r->heads);
    if (how == MHA__GGUF_ROWS_K) return undo_pairs(r, t, r->kv_heads);
    if (how == MHA__GGUF_PLUS_ONE) return subtract_one(r, t);
    return how == MHA__GGUF_TRANSPOSED && !bias ? transpose(r, t) : MHA_OK;
}

/* ---- names ---- */

static mha_status set_name(const renaming *r, mha_tensor *t, const char *name)
{
    void *memory;
    MHA__TRY(memory_of(r, strlen(name) + 1, &memory));
    t->name = memcpy(memory, name, strlen(name) + 1);
    return MHA_OK;
}

/* Adds a view of each expert's matrix. `pattern` is the name, with '*' for the number of the expert. */
static mha_status add_experts(renaming *r, const mha__record *whole, const char *pattern)
{
    enum { DIGITS = 4 }; /* of the number of an expert */
    const mha_tensor *t = &whole->tensor;
    const char *star = strchr(pattern, '*');
    const size_t each = strlen(pattern) + DIGITS;
    char rule[60];
    void *names;
    snprintf(rule, sizeof rule, "have rank 3 and %lld experts", (long long)r->experts);
    if (t->rank != 3 || t->shape[0] != r->experts)
        return fail(r, t, rule, mha__quote_shape(&(mha__quoted){0}, t->rank, t->shape));
    MHA__TRY(memory_of(r, (size_t)r->experts * each, &names));
    for (int64_t n = 0; n < r->experts; n++) {
        mha__record *own = &r->records[r->count++];
        *own = *whole;
        own->tensor.rank = 2;
        own->tensor.shape = t->shape + 1;
        own->tensor.elements = t->elements / r->experts;
        own->tensor.bytes = t->bytes / (size_t)r->experts;
        own->tensor.data = (const char *)t->data + (size_t)n * own->tensor.bytes;
        char *name = (char *)names + (size_t)n * each;
        snprintf(name, each, "%.*s%lld%s", (int)(star - pattern), pattern, (long long)n, star + 1);
        own->tensor.name = name;
    }
    return MHA_OK;
}

/* Adds the tensor that gate and up, or down, of all experts become. `name` is that of the tensor. Up is read with gate,
 * whose name precedes it. */
static mha_status add_stack(renaming *r, const mha_tensor *t, mha__gguf_change how, const char *name)
{
    char up[NAME], rule[NAME + 40];
    const mha_tensor *second = NULL;
    mha_tensor *own = &r->records[r->count].tensor;
    if (how != MHA__GGUF_STACK) {
        const char *gate = strstr(t->name, how == MHA__GGUF_GATE ? "gate_exps" : "up_exps");
        snprintf(up, sizeof up, "%.*s%s%s", (int)(gate - t->name), t->name, how == MHA__GGUF_GATE ? "up" : "gate",
                 strstr(gate, "_exps"));
        second = mha_file_find(r->file, up);
        snprintf(rule, sizeof rule, "have the counterpart %s", up);
        if (!second) return fail(r, t, rule, "no such tensor");
        if (how == MHA__GGUF_UP) return MHA_OK;
    }
    MHA__TRY(set_name(r, own, name));
    MHA__TRY(mha__derive_matrices(r->file, own->name, t, second, own, r->err));
    r->count++;
    return MHA_OK;
}

static mha_status rename_tensor(renaming *r, const mha__record *stored)
{
    char other[NAME];
    mha_tensor *t = &r->records[r->count].tensor;
    r->records[r->count] = *stored;
    const mha__gguf_part *part = mha__gguf_part_named(r->arch, t->name, true, other, sizeof other);
    const size_t suffix = strlen(t->name) > 5 ? strlen(t->name) - 5 : 0;
    if (r->arch->seq2seq && strcmp(t->name, "dec.blk.0.cross_attn_rel_b.weight") == 0) return MHA_OK; /* never read */
    if (mha__gguf_is_rope_factors(t->name)) {
        r->count++;
        return MHA_OK;
    }
    if (part && part->change == MHA__GGUF_EXPERTS) return add_experts(r, stored, other);
    if (!part) {
        char rule[80];
        snprintf(rule, sizeof rule, "be a tensor of the architecture %s", r->arch->name);
        return fail(r, t, rule, "an unknown name");
    }
    const bool bias = strcmp(t->name + suffix, ".bias") == 0;
    if (part->change >= MHA__GGUF_STACK && !(bias && part->change == MHA__GGUF_STACK))
        return add_stack(r, &stored->tensor, part->change, other);
    MHA__TRY(change(r, t, part->change, bias));
    r->count++;
    return set_name(r, t, other);
}

/* Refuses tensors of layers that the model lacks before their elements are copied. */
static mha_status check_layer(const renaming *r, const mha_tensor *t)
{
    char rule[60];
    if (strncmp(t->name, "blk.", 4) != 0 || strtoll(t->name + 4, NULL, 10) < r->layers) return MHA_OK;
    snprintf(rule, sizeof rule, "be absent in a %s of %lld layers", r->arch->family, (long long)r->layers);
    return fail(r, t, rule, "one");
}

/* Allocates the records: at most one per expert for each tensor of rank 3, which has at least as many elements. */
static mha_status allocate(renaming *r)
{
    size_t max = 0;
    MHA__TRY(mha__gguf_arch_int(r->file, r->arch, "expert_count", MHA__EXPERTS_MAX, &r->experts, r->err));
    for (int64_t n = 0; n < r->file->count; n++) {
        const mha_tensor *t = &r->file->records[n].tensor;
        MHA__TRY(check_layer(r, t));
        max += t->rank == 3 && t->shape[0] == r->experts ? (size_t)r->experts : 1;
    }
    if (max > MHA__GGUF_TENSORS)
        return mha__fail(r->err, MHA_ERR_FORMAT, "%s: tensors, with one per expert, must be at most %zu (got %zu)",
                         mha__quote(&(mha__quoted){0}, r->file->path, strlen(r->file->path)), MHA__GGUF_TENSORS, max);
    r->records = mha__calloc(r->file->ctx, max + 1, sizeof *r->records);
    return r->records ? MHA_OK : mha__no_memory(r->err, max * sizeof *r->records, "the tensors of a GGUF file");
}

static mha_status rename_all(renaming *r)
{
    MHA__TRY(mha__gguf_arch_int(r->file, r->arch, "attention.head_count", MHA__HEADS, &r->heads, r->err));
    r->kv_heads = r->heads;
    MHA__TRY(mha__gguf_arch_int(r->file, r->arch, "attention.head_count_kv", MHA__HEADS, &r->kv_heads, r->err));
    MHA__TRY(mha__gguf_arch_int(r->file, r->arch, "block_count", MHA__LAYERS, &r->layers, r->err));
    MHA__TRY(allocate(r));
    mha_status status = MHA_OK;
    for (int64_t n = 0; status == MHA_OK && n < r->file->count; n++)
        status = rename_tensor(r, &r->file->records[n]);
    mha__free(r->file->ctx, status == MHA_OK ? r->file->records : r->records);
    if (status != MHA_OK) return status;
    r->file->records = r->records;
    r->file->count = r->count;
    qsort(r->file->records, (size_t)r->file->count, sizeof *r->file->records, mha__record_by_name);
    return MHA_OK;
}

/* ---- the file ---- */

static mha_status find_arch(const mha_file *file, const mha__gguf_arch **arch, mha_error *err)
{
    const char *name = "";
    size_t n = 0;
    int64_t experts = 0;
    char names[200], rule[240], key[MHA__GGUF_CONFIG_KEY];
    MHA__TRY(mha__gguf_text(file, "general.architecture", &name, &n, err));
    *arch = mha__gguf_arch_named(name, n, false);
    if (*arch) {
        MHA__TRY(
            mha__gguf_int(file, mha__gguf_config_key(*arch, "expert_count", key), 0, MHA__EXPERTS_MAX, &experts, err));
        const bool gated = (*arch)->seq2seq && mha_file_find(file, "enc.blk.0.ffn_gate.weight");
        *arch = mha__gguf_arch_named(name, n, experts != 0 || gated);
        return MHA_OK;
    }
    mha__gguf_arch_names(names, sizeof names);
    snprintf(rule, sizeof rule, "one of %s", names);
    return mha__gguf_unsupported(file, "general.architecture", rule, err);
}

static mha_status translate(mha_file *file, char **config_json, mha_error *err)
{
    renaming r = {.file = file, .err = err};
    if (!file->gguf) {
        const char *path = file->path;
        return mha__fail(err, MHA_ERR_FORMAT, "%s: a model must be a folder or a GGUF file (got a %s file)",
                         mha__quote(&(mha__quoted){0}, path, strlen(path)), file->format);
    }
    MHA__TRY(find_arch(file, &r.arch, err));
    MHA__TRY(mha__gguf_check_keys(file, r.arch, err));
    MHA__TRY(mha__gguf_config(file, r.arch, config_json, err));
    return rename_all(&r);
}

mha_status mha__gguf_model_open(mha_ctx *ctx, const char *path, const mha_file_options *options, mha_file **file,
                                char **config_json, mha_error *err)
{
    *config_json = NULL;
    MHA__TRY(mha_file_open(ctx, path, options, file, err));
    const mha_status status = translate(*file, config_json, err);
    if (status == MHA_OK) return MHA_OK;
    mha__free(ctx, *config_json);
    mha_file_free(*file);
    *file = NULL;
    *config_json = NULL;
    return status;
}

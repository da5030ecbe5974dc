/* quantized_tensors.c - gives the weights of a quantized checkpoint folder the names and shapes that the family
 * expects: pairs of codes and scales become derived tensors (io/derived_tensor.h). */
#include "base/ctx.h"
#include "base/error.h"
#include "io/derived_tensor.h"
#include "io/files/input_file.h"
#include "model/weights/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 512 }; /* longer than any name of a family with a suffix */

typedef struct pairing {
    mha_file *file;
    const mha__config *c;
    mha__record *records; /* [count] the tensors that the model may read */
    int64_t count;
    mha_error *err;
} pairing;

/* Finds the tensor whose name has `to` instead of the suffix `from`; a longer name is not found. */
static const mha_tensor *sibling(const pairing *p, const mha_tensor *t, const char *from, const char *to,
                                 char name[NAME])
{
    const size_t stem = strlen(t->name) - strlen(from);
    const int n = snprintf(name, NAME, "%.*s%s", (int)(stem < NAME ? stem : NAME - 1), t->name, to);
    return n < NAME ? mha_file_find(p->file, name) : NULL;
}

static mha_status fail(const pairing *p, const char *name, const char *rule, mha_status status)
{
    const char *path = p->file->path;
    return mha__fail(p->err, status, "%s: tensor \"%s\" %s", mha__quote(&(mha__quoted){0}, path, strlen(path)),
                     mha__quote(&(mha__quoted){0}, name, strlen(name)), rule);
}

static mha_status add(pairing *p, const mha_tensor *t)
{
    p->records[p->count++] = (mha__record){.tensor = *t};
    return MHA_OK;
}

/* ---- MXFP4: NAME_blocks and NAME_scales become NAME ---- */

static const char blocks[] = "_blocks", scales[] = "_scales";

static mha_status add_mxfp4(pairing *p, const mha_tensor *t)
{
    char name[NAME];
    mha_tensor own;
    if (mha__name_ends(t->name, scales))
        return sibling(p, t, scales, blocks, name) ? MHA_OK : fail(p, name, "is missing", MHA_ERR_FORMAT);
    if (!mha__name_ends(t->name, blocks)) return add(p, t);
    const mha_tensor *scale = sibling(p, t, blocks, scales, name);
    if (!scale) return fail(p, name, "is missing", MHA_ERR_FORMAT);
    if (sibling(p, t, blocks, "", name)) return fail(p, name, "must be absent, since its blocks exist", MHA_ERR_FORMAT);
    char *kept = mha__file_memory(p->file, strlen(name) + 1);
    if (!kept) return mha__no_memory(p->err, strlen(name) + 1, "the name of a tensor");
    memcpy(kept, name, strlen(name) + 1);
    MHA__TRY(mha__derive_mxfp4(p->file, kept, t, scale, &own, p->err));
    return add(p, &own);
}

/* ---- 8-bit floats: NAME.weight and its scale become NAME.weight ---- */

static const char weight[] = ".weight";
static const char *const weight_scales[] = {".weight_scale_inv", ".weight_scale"};
/* Scales of activations, which are not quantized here. */
static const char *const other_scales[] = {".input_scale",      ".input_scale_ub", ".output_scale",
                                           ".activation_scale", ".k_scale",        ".v_scale"};

/* Handles tensors other than weights: a scale must have a weight of 8 bits. Sets *done to true for them. */
static mha_status skip_scale(const pairing *p, const mha_tensor *t, bool *done)
{
    char name[NAME];
    *done = true;
    if (mha__name_ends(t->name, ".weight_zero_point"))
        return fail(p, t->name, "must be absent, since 8-bit floats have no zero points", MHA_ERR_UNSUPPORTED);
    for (size_t n = 0; n < sizeof other_scales / sizeof *other_scales; n++)
        if (mha__name_ends(t->name, other_scales[n])) return MHA_OK;
    for (size_t n = 0; n < 2; n++)
        if (mha__name_ends(t->name, weight_scales[n]))
            return sibling(p, t, weight_scales[n], weight, name) ? MHA_OK : fail(p, name, "is missing", MHA_ERR_FORMAT);
    *done = false;
    return MHA_OK;
}

static mha_status add_fp8(pairing *p, const mha_tensor *t)
{
    char name[NAME], other[NAME];
    bool done;
    mha_tensor own;
    MHA__TRY(skip_scale(p, t, &done));
    if (done) return MHA_OK;
    if (!mha__name_ends(t->name, weight)) return add(p, t);
    const mha_tensor *scale = sibling(p, t, weight, weight_scales[0], name);
    const mha_tensor *second = sibling(p, t, weight, weight_scales[1], other);
    if (scale && second) return fail(p, name, "must be absent, since the weight has two scales", MHA_ERR_FORMAT);
    if (!scale) scale = second;
    if (!scale && strncmp(t->dtype_name, "F8_", 3) == 0)
        return fail(p, p->c->fp8_block[0] ? name : other, "is missing", MHA_ERR_FORMAT);
    if (!scale) return add(p, t);
    const int64_t *block = p->c->fp8_block[0] ? p->c->fp8_block : NULL;
    MHA__TRY(mha__derive_fp8(p->file, t->name, t, scale, block, &own, p->err));
    return add(p, &own);
}

/* ---- the file ---- */

static mha_status pair_all(pairing *p)
{
    for (int64_t n = 0; n < p->file->count; n++) {
        const mha_tensor *t = &p->file->records[n].tensor;
        MHA__TRY(p->c->quantization == MHA__QUANTIZED_MXFP4 ? add_mxfp4(p, t) : add_fp8(p, t));
    }
    return MHA_OK;
}

mha_status mha__quantized_tensors(mha_file *file, const mha__config *c, mha_error *err)
{
    pairing p = {.file = file, .c = c, .err = err};
    if (!c->quantization || file->gguf) return MHA_OK;
    p.records = mha__calloc(file->ctx, (size_t)file->count + 1, sizeof *p.records);
    if (!p.records) return mha__no_memory(err, (size_t)file->count * sizeof *p.records, "the list of tensors");
    const mha_status status = pair_all(&p);
    mha__free(file->ctx, status == MHA_OK ? file->records : p.records);
    if (status != MHA_OK) return status;
    file->records = p.records;
    file->count = p.count;
    qsort(file->records, (size_t)file->count, sizeof *file->records, mha__record_by_name);
    return MHA_OK;
}

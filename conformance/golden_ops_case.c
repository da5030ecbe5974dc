/* golden_ops_case.c - reads the recorded tensors of a case, allocates its memory, and compares its results. */
#include "conformance/golden_ops.h"
#include "output.h"
#include <math.h>
#include <string.h>

static const char *path_of(const ops_case *c, const char *name, char path[160])
{
    snprintf(path, 160, "%s/%s", c->entry.name, name);
    return path;
}

const mha_tensor *ops_find(const ops_case *c, const char *name)
{
    char path[160];
    const mha_tensor *tensor = mha_file_find(c->file, path_of(c, name, path));
    return tensor ? tensor : mha_file_find(c->file, name);
}

const float *ops_floats(ops_case *c, const char *name, int rank, int64_t *shape)
{
    char path[160];
    const mha_tensor *found = ops_find(c, name);
    const mha_tensor *tensor =
        verify_tensor(&c->entry, c->file, found ? found->name : path_of(c, name, path), rank, shape);
    if (tensor && tensor->dtype != MHA_F32)
        verify_fault(&c->entry, "tensor \"%s\" must have dtype f32 (got %s)", cli_shown(tensor->name),
                     tensor->dtype_name);
    return c->entry.error->status == MHA_OK ? verify_raw(&c->memory, &c->entry, tensor) : NULL;
}

float *ops_room(ops_case *c, int64_t count)
{
    return verify_alloc(&c->memory, count, sizeof(float), &c->entry);
}

void ops_compare(ops_case *c, const char *name, const float *got, int64_t count, int64_t but, double size)
{
    static const double UNITS = 32;
    const mha_tensor *tensor = ops_find(c, name);
    double largest = size;
    if (!tensor || tensor->elements != count) {
        verify_fault(&c->entry, "the file must have a tensor \"%s\" of %lld elements", name, (long long)count);
        return;
    }
    const double *want = verify_reals(&c->memory, &c->entry, tensor);
    for (int64_t n = 0; want && n < count - but; n++)
        if (isfinite(want[n]) && fabs(want[n]) > largest) largest = fabs(want[n]);
    if (want && got) verify_compare(&c->outcome, name, got, want, count - but, UNITS * 0x1p-24 * largest);
}

void ops_skip(ops_case *c, const char *name)
{
    if (ops_find(c, name)) verify_skip(c->log, name);
}

/* stored_parts.c - compares, hashes and describes tensors by what files store of them (derived_tensor.h). */
#include "io/derived_tensor.h"
#include "math/hash.h"

mha_dtype mha__tensor_dtype(const mha_tensor *tensor)
{
    const mha__derived *d = mha__derived_of(tensor);
    if (!d) return tensor->dtype;
    const mha_dtype dtype = d->parts[0].dtype;
    if (dtype != MHA_F16 && dtype != MHA_BF16) return MHA_F32;
    return d->part_count == 1 || d->parts[1].dtype == dtype ? dtype : MHA_F32;
}

bool mha__tensor_same(const mha_tensor *a, const mha_tensor *b, size_t first, size_t bytes)
{
    const mha__derived *x = mha__derived_of(a), *y = mha__derived_of(b);
    if (a->dtype != b->dtype || strcmp(a->dtype_name, b->dtype_name) != 0 || a->bytes != b->bytes) return false;
    if (memcmp((const char *)a->data + first, (const char *)b->data + first, bytes) != 0) return false;
    if (x && x->part_count != y->part_count) return false;
    for (int n = 1; x && n < x->part_count; n++) {
        const mha_tensor *s = &x->parts[n], *t = &y->parts[n];
        if (s->rank != t->rank || memcmp(s->shape, t->shape, (size_t)s->rank * sizeof *s->shape) != 0) return false;
        if (!mha__tensor_same(s, t, 0, s->bytes)) return false;
    }
    return true;
}

uint64_t mha__derived_hash(uint64_t h, const mha_tensor *tensor, size_t max)
{
    const mha__derived *d = mha__derived_of(tensor);
    for (int n = 1; d && n < d->part_count; n++)
        h = mha__hash(h, d->parts[n].data, d->parts[n].bytes < max ? d->parts[n].bytes : max);
    return h;
}

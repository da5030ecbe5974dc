/* batch_shape.c - rows and keys of the sequences of a batch. */
#include "base/size.h"
#include "model/forward/batch.h"

int64_t mha__batch_past(const mha__batch *p, int64_t b)
{
    if (!p->in.cache) return 0;
    return mha_model_cache_length(p->in.cache, p->in.batch == 1 ? p->in.sequence : b);
}

int64_t mha__batch_map_rows(const mha__batch *p)
{
    int64_t max = p->in.starts ? 0 : p->in.length;
    for (int64_t b = 0; p->in.starts && b < p->sequences; b++)
        max = mha__max64(max, p->in.starts[b + 1] - p->in.starts[b]);
    return max;
}

int64_t mha__batch_map_keys(const mha__batch *p)
{
    return p->max_past + mha__batch_map_rows(p);
}

int64_t mha__batch_first(const mha__batch *p, int64_t b)
{
    return p->in.starts ? p->in.starts[b] : b * p->in.length;
}

int64_t mha__batch_last(const mha__batch *p, int64_t b)
{
    const int64_t first = mha__batch_first(p, b);
    int64_t last = p->in.starts ? p->in.starts[b + 1] - 1 : first + p->in.length - 1;
    while (p->in.mask && last > first && !p->in.mask[last])
        last--;
    return last;
}

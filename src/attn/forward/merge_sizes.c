/* merge_sizes.c - checks the sizes that are passed to mha_attn_merge and mha_attn_merge_partials. */
#include "attn/forward/merge_sizes.h"

#include "attn/plan/params.h"
#include "base/error.h"
#include "base/size.h"
#include <inttypes.h>

mha_status mha__merge_check_sizes(const mha__merge_sizes *s, mha_error *err)
{
    const struct {
        const char *name;
        int64_t value, min;
    } sizes[] = {
        {"batch", s->batch, 1}, {"heads", s->heads, 1}, {"q_len", s->q_len, 0}, {"count", s->count, s->min_count}};
    const int64_t all[] = {s->batch, s->heads, mha__max64(s->q_len, 1), s->width};
    size_t bytes;
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        if (sizes[n].value < sizes[n].min)
            return mha__fail(err, MHA_ERR_ARG, "%s must be at least %" PRId64 " (got %" PRId64 ")", sizes[n].name,
                             sizes[n].min, sizes[n].value);
    MHA__TRY(mha__attn_check_width("v_head_dim", s->v_head_dim, false, err));
    if (!mha__bytes(all, 4, sizeof(double), &bytes) || bytes > PTRDIFF_MAX)
        return mha__fail(err, MHA_ERR_ARG,
                         "batch * heads * q_len * v_head_dim must fit the address space (got %" PRId64 " * %" PRId64
                         " * %" PRId64 " * %" PRId64 ")",
                         s->batch, s->heads, s->q_len, s->v_head_dim);
    return s->count == 0 || s->parts ? MHA_OK : mha__fail(err, MHA_ERR_ARG, "parts must not be NULL");
}

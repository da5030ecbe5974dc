/* repeat_kv_heads.c - supports k and v with different head counts. The operator requires one count for both, so heads
 * are repeated after the projection; weights and matrix products keep their size. */
#include "base/ctx.h"
#include "base/size.h"
#include "layer/attention/attention_layer.h"
#include <string.h>

enum { REPEAT_ROWS = 32 }; /* rows per task */

typedef struct repeat_job {
    const mha_attn_layer *layer;
    int64_t rows;
    bool back;
    float *qkv;
} repeat_job;

/* Repeats the `count` heads of one row at `from` so that `to` has `copies` heads. `to` does not precede `from`, so the
 * last head is copied first. */
static void spread(int64_t count, int64_t copies, int64_t width, const float *from, float *to)
{
    for (int64_t n = copies - 1; n >= 0; n--) {
        const float *head = from + n / (copies / count) * width;
        if (head != to + n * width) memcpy(to + n * width, head, (size_t)width * sizeof *to);
    }
}

/* Sums the copies of each head in ascending order; `to` does not follow `from`. */
static void gather(int64_t count, int64_t copies, int64_t width, const float *from, float *to)
{
    const int64_t each = copies / count;
    for (int64_t n = 0; n < count; n++) {
        const float *first = from + n * each * width;
        memmove(to + n * width, first, (size_t)width * sizeof *to);
        for (int64_t i = width; i < each * width; i++)
            to[n * width + i % width] += first[i];
    }
}

static void repeat_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const repeat_job *job = arg;
    const mha_attn_layer *l = job->layer;
    const int64_t D = l->options.head_dim, H = l->options.heads, copies = l->options.kv_heads;
    for (int64_t r = item * REPEAT_ROWS; r < mha__min64(job->rows, (item + 1) * REPEAT_ROWS); r++) {
        float *k = job->qkv + (r * (H + 2 * copies) + H) * D;
        float *written_v = k + l->k_heads * D, *v = k + copies * D;
        if (job->back) {
            gather(l->k_heads, copies, D, k, k);
            gather(l->v_heads, copies, D, v, written_v);
        } else {
            spread(l->v_heads, copies, D, written_v, v);
            spread(l->k_heads, copies, D, k, k);
        }
    }
}

void mha__attn_repeat_kv_heads(const mha_attn_layer *layer, int64_t rows, bool back, float *qkv)
{
    repeat_job job = {.layer = layer, .rows = rows, .back = back, .qkv = qkv};
    if (layer->k_heads != layer->v_heads)
        mha__parallel(layer->ctx, mha__ceil_div(rows, REPEAT_ROWS), repeat_task, &job);
}

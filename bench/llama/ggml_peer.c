/* ggml_peer.c - ggml's flash attention for bench/compare.py: a problem is opened once and computed many times.
 *
 * bench/llama/build.sh builds it with ggml, and compare.py loads it with ctypes; it is not part of mha. The caller
 * owns the memory of the tensors. ggml lists dimensions in reverse order, and its result is [B, Lq, H, D].
 */
#include <ggml-cpu.h>
#include <ggml.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct peer {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_threadpool *pool;
    struct ggml_cplan plan;
} peer;

/* The sizes of a problem. If `half` is set, K and V are stored as f16. */
typedef struct peer_problem {
    int64_t B, H, Hkv, Lq, Lk, D;
    int causal, half, threads;
} peer_problem;

void peer_close(peer *p)
{
    if (!p) return;
    if (p->pool) ggml_threadpool_free(p->pool);
    if (p->ctx) ggml_free(p->ctx);
    free(p->plan.work_data);
    free(p);
}

static struct ggml_tensor *tensor(peer *p, enum ggml_type type, int64_t d, int64_t l, int64_t h, int64_t b,
                                  const void *data)
{
    struct ggml_tensor *t = ggml_new_tensor_4d(p->ctx, type, d, l, h, b);
    t->data = (void *)(uintptr_t)data; /* ggml does not write to its sources */
    return t;
}

/* Prepares a problem. `mask` is [Lq, Lk] in f16 (0 or -inf), or NULL; `out` has B Lq H D floats. Returns NULL if memory
 * is exhausted. */
peer *peer_open(const peer_problem *x, const float *q, const void *k, const void *v, const uint16_t *mask, float *out)
{
    peer *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    ggml_cpu_init();
    p->ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_threadpool_params params = ggml_threadpool_params_default(x->threads);
    p->pool = ggml_threadpool_new(&params);
    if (!p->ctx || !p->pool) {
        peer_close(p);
        return NULL;
    }
    const enum ggml_type cache = x->half ? GGML_TYPE_F16 : GGML_TYPE_F32;
    struct ggml_tensor *result = ggml_flash_attn_ext(
        p->ctx, tensor(p, GGML_TYPE_F32, x->D, x->Lq, x->H, x->B, q), tensor(p, cache, x->D, x->Lk, x->Hkv, x->B, k),
        tensor(p, cache, x->D, x->Lk, x->Hkv, x->B, v),
        mask ? tensor(p, GGML_TYPE_F16, x->Lk, x->Lq, 1, 1, mask) : NULL, 1 / sqrtf((float)x->D), 0, 0);
    result->data = out;
    p->graph = ggml_new_graph(p->ctx);
    ggml_build_forward_expand(p->graph, result);
    p->plan = ggml_graph_plan(p->graph, x->threads, p->pool);
    p->plan.work_data = malloc(p->plan.work_size + 1);
    if (p->plan.work_data) return p;
    peer_close(p);
    return NULL;
}

/* Computes the output; returns 0 on success. */
int peer_run(peer *p)
{
    return ggml_graph_compute(p->graph, &p->plan) != GGML_STATUS_SUCCESS;
}

/* Pauses ggml's worker threads, which otherwise spin between calls and occupy the cores. */
void peer_pause(peer *p)
{
    ggml_threadpool_pause(p->pool);
}

void peer_resume(peer *p)
{
    ggml_threadpool_resume(p->pool);
}

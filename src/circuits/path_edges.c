/* path_edges.c - path patching of every edge of the graph of a model: from the embedding, heads and feed-forward parts
 * to heads, feed-forward parts and the logits. */
#include "base/ctx.h"
#include "base/error.h"
#include "circuits/path.h"

/* ---- the graph ---- */

typedef struct edge_list {
    const mha_prompt_pair *pair;
    mha_path_edge *list; /* NULL = count only */
    int64_t count;
} edge_list;

static bool feeds(const mha_prompt_pair *pair, int64_t layer)
{
    return mha__block_feeds(pair->model->block[layer]);
}

static void add(edge_list *e, mha_path_edge from, mha_path_receiver to, int64_t layer, int64_t head)
{
    from.to = to;
    from.to_layer = layer;
    from.to_head = head;
    if (e->list) e->list[e->count] = from;
    e->count++;
}

/* Adds the edges of a sender, in the order of receivers. */
static void add_sender(edge_list *e, mha_path_sender sender, int64_t layer, int64_t head)
{
    static const mha_site sites[] = {MHA_SITE_Q, MHA_SITE_K, MHA_SITE_V};
    const mha_prompt_pair *pair = e->pair;
    const mha_path_edge from = {.from = sender, .from_layer = layer, .from_head = head};
    if (sender == MHA_PATH_FROM_HEAD && feeds(pair, layer) && !pair->model->block[layer]->parallel)
        add(e, from, MHA_PATH_MLP, layer, -1);
    for (int64_t l = layer + 1; l < pair->info->layers; l++) {
        for (int to = MHA_PATH_Q; to <= MHA_PATH_V; to++)
            for (int64_t h = 0; h < mha__site_heads(pair, sites[to], l); h++)
                add(e, from, (mha_path_receiver)to, l, h);
        if (feeds(pair, l)) add(e, from, MHA_PATH_MLP, l, -1);
    }
    add(e, from, MHA_PATH_LOGITS, -1, -1);
}

static int64_t list_edges(const mha_prompt_pair *pair, mha_path_edge *list)
{
    edge_list e = {pair, list, 0};
    add_sender(&e, MHA_PATH_FROM_EMBEDDING, -1, -1);
    for (int64_t layer = 0; layer < pair->info->layers; layer++) {
        for (int64_t h = 0; h < pair->info->heads_per_layer[layer]; h++)
            add_sender(&e, MHA_PATH_FROM_HEAD, layer, h);
        if (feeds(pair, layer)) add_sender(&e, MHA_PATH_FROM_MLP, layer, -1);
    }
    return e.count;
}

int64_t mha_path_edge_count(const mha_prompt_pair *pair)
{
    return pair ? list_edges(pair, NULL) : 0;
}

/* ---- measuring ---- */

typedef struct edges {
    mha__path path;
    const mha_path_edge *list;
    int64_t count;
    double *out;
} edges;

/* Returns the end of the edges from `first` on that have its sender and, with same_layer, its receiver's layer. */
static int64_t end_of(const edges *e, int64_t first, bool same_layer)
{
    const mha_path_edge *a = &e->list[first];
    int64_t n = first + 1;
    for (; n < e->count; n++) {
        const mha_path_edge *b = &e->list[n];
        if (a->from != b->from || a->from_layer != b->from_layer || a->from_head != b->from_head) break;
        if (same_layer && a->to_layer != b->to_layer) break;
    }
    return n;
}

/* Returns the rows that replace the receiver of an edge. */
static mha__patch patch_of(const edges *e, const mha_path_edge *edge)
{
    static const mha_site sites[] = {MHA_SITE_Q, MHA_SITE_K, MHA_SITE_V, MHA_SITE_RESID_POST, MHA_SITE_MLP_OUT};
    const mha_prompt_pair *pair = e->path.pair;
    const int64_t layer = edge->to == MHA_PATH_LOGITS ? pair->info->layers - 1 : edge->to_layer;
    const mha_patch_part part = {sites[edge->to], layer, edge->to_head, -1};
    if (edge->to == MHA_PATH_LOGITS) return (mha__patch){part, e->path.hidden, pair->width};
    if (edge->to == MHA_PATH_MLP) return (mha__patch){part, e->path.mlp, pair->width};
    return (mha__patch){part, e->path.qkv + mha__part_columns(pair, &part).offset, pair->qkv_width};
}

/* Computes what the receivers of edges [first, end), which are in one layer, read from the changed stream. */
static mha_status read_layer(const edges *e, int64_t first, int64_t end, mha_error *err)
{
    const int64_t layer = e->list[first].to_layer;
    if (e->list[first].to == MHA_PATH_LOGITS) {
        mha__path_to_logits(&e->path);
        return MHA_OK;
    }
    const bool parallel = e->path.pair->model->block[layer]->parallel;
    if (e->list[first].to != MHA_PATH_MLP) MHA__TRY(mha__path_to_layer(&e->path, layer, err));
    return e->list[end - 1].to == MHA_PATH_MLP && !parallel ? mha__path_to_mlp(&e->path, layer, err) : MHA_OK;
}

static mha_status measure_layer(const edges *e, int64_t first, int64_t end, mha_error *err)
{
    const mha_prompt_pair *pair = e->path.pair;
    const size_t bytes = (size_t)(end - first) * (sizeof(mha__patch) + sizeof(mha__patch_job));
    MHA__TRY(read_layer(e, first, end, err));
    mha__patch_job *jobs = mha__alloc(pair->ctx, bytes);
    if (!jobs) return mha__no_memory(err, bytes, "edges");
    mha__patch *patches = (mha__patch *)(jobs + (end - first));
    for (int64_t n = first; n < end; n++) {
        patches[n - first] = patch_of(e, &e->list[n]);
        jobs[n - first] = (mha__patch_job){&patches[n - first], 1, n};
    }
    const mha_status status =
        mha__patch_jobs(pair, e->path.base, e->path.source, jobs, end - first, e->out, e->count, NULL, err);
    mha__free(pair->ctx, jobs);
    return status;
}

/* Measures edges [first, end), which have the same sender. */
static mha_status measure_sender(const edges *e, int64_t first, int64_t end, mha_error *err)
{
    const mha_path_edge *edge = &e->list[first];
    bool changes = false;
    if (edge->from == MHA_PATH_FROM_EMBEDDING) mha__path_from_embedding(&e->path, &changes);
    if (edge->from == MHA_PATH_FROM_MLP) mha__path_from_mlp(&e->path, edge->from_layer, &changes);
    if (edge->from == MHA_PATH_FROM_HEAD)
        MHA__TRY(mha__path_from_head(&e->path, edge->from_layer, edge->from_head, &changes, err));
    for (int64_t n = first, next; changes && n < end; n = next) {
        next = end_of(e, n, true);
        MHA__TRY(measure_layer(e, n, next, err));
    }
    return MHA_OK;
}

mha_status mha_path_edges(const mha_prompt_pair *pair, mha_patch_direction direction, mha_path_edge *list, double *out,
                          mha_error *err)
{
    MHA__TRY(mha__pair_check(pair, (int)direction, out, "mha_path_edges", err));
    if (!list) return mha__fail(err, MHA_ERR_ARG, "mha_path_edges: edges must not be NULL");
    edges e = {.list = list, .out = out};
    mha_status status = mha__path_open(pair, direction, "mha_path_edges", &e.path, err);
    if (status == MHA_OK) {
        e.count = list_edges(pair, list);
        mha__fill_metrics(e.path.base, e.count, out);
    }
    for (int64_t n = 0, next; status == MHA_OK && n < e.count; n = next) {
        next = end_of(&e, n, false);
        status = measure_sender(&e, n, next, err);
        if (status == MHA_OK) status = mha__progress(pair->ctx, "path", next, e.count, err);
    }
    mha__path_close(&e.path);
    return status;
}

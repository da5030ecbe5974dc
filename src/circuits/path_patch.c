/* path_patch.c - path patching between heads: the direct path from a sender's output through the residual stream to a
 * receiver's queries, keys or values, or to the logits. */
#include "base/ctx.h"
#include "base/error.h"
#include "circuits/path.h"

typedef struct paths {
    mha__path path;
    mha_path_receiver to;
    mha_site site;     /* of the receiver */
    int64_t receivers; /* heads per layer in the results */
    int64_t columns;   /* R of the results */
    double *out;
} paths;

/* Repeats the base run with the receivers of a layer replaced, each in its own copy. */
static mha_status to_heads(paths *p, int64_t sender, int64_t layer, mha_error *err)
{
    const mha_prompt_pair *pair = p->path.pair;
    const int64_t heads = mha__site_heads(pair, p->site, layer), all = pair->info->layers * pair->info->heads;
    const size_t bytes = (size_t)heads * (sizeof(mha__patch) + sizeof(mha__patch_job));
    mha__patch_job *jobs = mha__alloc(pair->ctx, bytes);
    if (!jobs) return mha__no_memory(err, bytes, "receivers");
    mha__patch *patches = (mha__patch *)(jobs + heads);
    for (int64_t h = 0; h < heads; h++) {
        const mha_patch_part part = {p->site, layer, h, -1};
        patches[h] = (mha__patch){part, p->path.qkv + mha__part_columns(pair, &part).offset, pair->qkv_width};
        jobs[h] = (mha__patch_job){&patches[h], 1, sender * p->columns + layer * p->receivers + h};
    }
    const mha_status status =
        mha__patch_jobs(pair, p->path.base, p->path.source, jobs, heads, p->out, all * p->columns, NULL, err);
    mha__free(pair->ctx, jobs);
    return status;
}

/* Adds the change to the final residual of a copy of the base run. */
static mha_status to_logits(paths *p, int64_t sender, mha_error *err)
{
    const mha_prompt_pair *pair = p->path.pair;
    const int64_t last = pair->info->layers;
    mha__path_to_logits(&p->path);
    const mha__patch patch = {{MHA_SITE_RESID_POST, last - 1, -1, -1}, p->path.hidden, pair->width};
    const mha__patch_job job = {&patch, 1, sender};
    return mha__patch_jobs(pair, p->path.base, p->path.source, &job, 1, p->out, last * pair->info->heads, NULL, err);
}

/* ---- all senders ---- */

static mha_status send(paths *p, int64_t layer, int64_t head, mha_error *err)
{
    const mha_model_info *info = p->path.pair->info;
    const int64_t sender = layer * info->heads + head;
    bool changes = false;
    MHA__TRY(mha__path_from_head(&p->path, layer, head, &changes, err));
    if (!changes) return MHA_OK;
    if (p->to == MHA_PATH_LOGITS) return to_logits(p, sender, err);
    for (int64_t l = layer + 1; l < info->layers; l++) {
        MHA__TRY(mha__path_to_layer(&p->path, l, err));
        MHA__TRY(to_heads(p, sender, l, err));
    }
    return MHA_OK;
}

mha_status mha_path_patch(const mha_prompt_pair *pair, mha_path_receiver to, mha_patch_direction direction, double *out,
                          mha_error *err)
{
    static const mha_site sites[] = {MHA_SITE_Q, MHA_SITE_K, MHA_SITE_V, MHA_SITE_RESID_POST};
    MHA__TRY(mha__pair_check(pair, (int)direction, out, "mha_path_patch", err));
    if ((int)to < 0 || to > MHA_PATH_LOGITS)
        return mha__fail(err, MHA_ERR_ARG, "mha_path_patch: to must be MHA_PATH_Q, _K, _V or _LOGITS (got %d)",
                         (int)to);
    const int64_t L = pair->info->layers, H = pair->info->heads;
    paths p = {.to = to, .site = sites[to], .out = out};
    p.receivers = mha__site_max_heads(pair, p.site);
    p.columns = to == MHA_PATH_LOGITS ? 1 : L * p.receivers;
    mha_status status = mha__path_open(pair, direction, "mha_path_patch", &p.path, err);
    if (status == MHA_OK) mha__fill_metrics(p.path.base, L * H * p.columns, out);
    for (int64_t n = 0; status == MHA_OK && n < L * H; n++) {
        if (n % H < pair->info->heads_per_layer[n / H]) status = send(&p, n / H, n % H, err);
        if (status == MHA_OK) status = mha__progress(pair->ctx, "path", n + 1, L * H, err);
    }
    mha__path_close(&p.path);
    return status;
}

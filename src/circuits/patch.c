/* patch.c - activation patching: which parts have to run, and their order. */
#include "base/ctx.h"
#include "base/error.h"
#include "circuits/prompt_pair.h"
#include <stdio.h>
#include <string.h>

/* ---- shapes ---- */

int mha_patch_shape(const mha_prompt_pair *pair, mha_site site, mha_patch_by by, int64_t shape[3])
{
    const bool heads = site >= MHA_SITE_Q && site <= MHA_SITE_PATTERN;
    if (!pair || !shape || (int)site < 0 || site >= MHA_SITES || (int)by < 0 || by > MHA_BY_HEAD_POSITION) return 0;
    if (heads == (by == MHA_BY_POSITION)) return 0;
    shape[0] = pair->info->layers;
    shape[1] = heads ? mha__site_max_heads(pair, site) : pair->length;
    shape[2] = pair->length;
    return by == MHA_BY_HEAD_POSITION ? 3 : 2;
}

static int64_t elements(int rank, const int64_t *shape)
{
    int64_t count = rank > 0;
    for (int n = 0; n < rank; n++)
        count *= shape[n];
    return count;
}

/* Returns part n of a sweep; its head is -2 if the layer does not have the head. */
static mha_patch_part part_at(const mha_prompt_pair *pair, mha_site site, mha_patch_by by, const int64_t *shape,
                              int64_t n)
{
    mha_patch_part part = {.site = site, .head = -1, .position = -1};
    if (by != MHA_BY_HEAD) {
        part.position = n % pair->length;
        n /= pair->length;
    }
    if (by != MHA_BY_POSITION) {
        part.head = n % shape[1];
        n /= shape[1];
    }
    part.layer = n;
    if (by != MHA_BY_POSITION && part.head >= mha__site_heads(pair, site, part.layer)) part.head = -2;
    return part;
}

/* ---- parts that need no run ---- */

/* Returns true if the site of the last layer only reaches the position through its own row. */
static bool stays_in_row(mha_site site)
{
    return site != MHA_SITE_RESID_PRE && site != MHA_SITE_K && site != MHA_SITE_V;
}

/* Returns true if patching the part cannot change the metrics. */
static bool is_idle(const mha_prompt_pair *pair, const mha_patch_part *part)
{
    const bool last = part->layer == pair->info->layers - 1;
    if (part->head == -2) return true;
    if (part->position >= 0 && part->position != pair->position) {
        if (last && stays_in_row(part->site)) return true;
        if (pair->info->causal && part->position > pair->position) return true;
    }
    return mha__part_equal(pair, part);
}

int64_t mha_patch_passes(const mha_prompt_pair *pair, mha_site site, mha_patch_by by, mha_patch_direction direction)
{
    int64_t shape[3], passes = 0;
    const int rank = mha_patch_shape(pair, site, by, shape);
    (void)direction; /* a part is equal in both runs, or in neither */
    for (int64_t n = 0; n < elements(rank, shape); n++) {
        const mha_patch_part part = part_at(pair, site, by, shape, n);
        passes += !is_idle(pair, &part);
    }
    return passes;
}

/* ---- patching ---- */

/* Sets a patch to the recorded rows of the part in the source run. */
static mha__patch patch_of(const mha_prompt_pair *pair, const mha__run_record *source, const mha_patch_part *part)
{
    mha__patch patch = {.part = *part};
    patch.value = mha__part_rows(pair, source, part, &patch.stride);
    return patch;
}

static mha_status check_sweep(const mha_prompt_pair *pair, mha_site site, mha_patch_by by, int64_t *shape, int *rank,
                              mha_error *err)
{
    MHA__TRY(mha__site_check(pair, site, err));
    *rank = mha_patch_shape(pair, site, by, shape);
    if (*rank > 0) return MHA_OK;
    return mha__by_fail(site, by, err);
}

/* The grid of all parts of a site. */
typedef struct part_grid {
    const mha_prompt_pair *pair;
    mha_site site;
    mha_patch_by by;
    mha_patch_direction direction;
    int rank;
    int64_t shape[3];
    double *out;
} part_grid;

/* Runs the jobs that are not finished in the file `path`, and stores the metrics there. */
static mha_status run_jobs(const part_grid *g, const mha__patch_job *jobs, int64_t count, const char *path,
                           mha_error *err)
{
    static const char *const by[] = {"position", "head", "head and position"};
    const mha_named_tensor metrics = {.name = "metrics",
                                      .dtype = MHA_F64,
                                      .rank = 1 + g->rank,
                                      .shape = {MHA_CIRCUIT_METRICS, g->shape[0], g->shape[1], g->shape[2]},
                                      .data = g->out};
    char options[96];
    snprintf(options, sizeof options, "patch %s by %s, %s", mha_site_name(g->site), by[g->by],
             g->direction == MHA_DENOISE ? "denoise" : "noise");
    const mha__state_of of = {.path = path, .options = options, .steps = count, .mark = g->pair->mark};
    mha__state state;
    mha__patch_steps steps = {.what = "patch", .state = &state};
    MHA__TRY(mha__state_open(&state, g->pair->model, &of, &metrics, 1, &steps.done, err));
    if (steps.done) MHA__TRY(mha__progress(g->pair->ctx, steps.what, steps.done, count, err));
    const mha_status status =
        mha__patch_jobs(g->pair, mha__base_run(g->pair, g->direction), mha__source_run(g->pair, g->direction), jobs,
                        count, g->out, elements(g->rank, g->shape), &steps, err);
    if (status == MHA_ERR_CANCELED) mha__state_save(&state, steps.done, NULL);
    return status;
}

mha_status mha_patch(const mha_prompt_pair *pair, mha_site site, mha_patch_by by, mha_patch_direction direction,
                     double *out, mha_error *err)
{
    MHA__TRY(mha__pair_check(pair, (int)direction, out, "mha_patch", err));
    return mha_patch_resume(pair, site, by, direction, NULL, out, err);
}

mha_status mha_patch_resume(const mha_prompt_pair *pair, mha_site site, mha_patch_by by, mha_patch_direction direction,
                            const char *state, double *out, mha_error *err)
{
    part_grid g = {.pair = pair, .site = site, .by = by, .direction = direction, .out = out};
    int64_t count = 0;
    MHA__TRY(mha__pair_check(pair, (int)direction, out, "mha_patch_resume", err));
    MHA__TRY(check_sweep(pair, site, by, g.shape, &g.rank, err));
    const mha__run_record *source = mha__source_run(pair, direction);
    const int64_t all = elements(g.rank, g.shape);
    const size_t each = sizeof(mha__patch) + sizeof(mha__patch_job);
    mha__patch_job *jobs = mha__calloc(pair->ctx, (size_t)all, each);
    if (!jobs) return mha__no_memory(err, (size_t)all * each, "parts to patch");
    mha__patch *patches = (mha__patch *)(jobs + all);
    mha__fill_metrics(mha__base_run(pair, direction), all, out);
    for (int64_t n = 0; n < all; n++) {
        const mha_patch_part part = part_at(pair, site, by, g.shape, n);
        if (is_idle(pair, &part)) continue;
        patches[count] = patch_of(pair, source, &part);
        jobs[count] = (mha__patch_job){&patches[count], 1, n};
        count++;
    }
    const mha_status status = run_jobs(&g, jobs, count, state, err);
    mha__free(pair->ctx, jobs);
    return status;
}

/* ---- several parts together ---- */

static mha_status check_part(const mha_prompt_pair *pair, const mha_patch_part *part, int64_t index, mha_error *err)
{
    MHA__TRY(mha__site_check(pair, part->site, err));
    if (part->layer < 0 || part->layer >= pair->info->layers)
        return mha__fail(err, MHA_ERR_ARG, "parts[%lld]: layer must be from 0 to %lld (got %lld)", (long long)index,
                         (long long)pair->info->layers - 1, (long long)part->layer);
    const int64_t heads = mha__site_heads(pair, part->site, part->layer);
    const int64_t min = part->site == MHA_SITE_PATTERN ? 0 : -1;
    if (part->head < min || part->head >= mha__max64(heads, 0))
        return mha__fail(err, MHA_ERR_ARG,
                         "parts[%lld]: head must be from %lld to %lld for %s in layer %lld (got %lld)",
                         (long long)index, (long long)min, (long long)heads - 1, mha_site_name(part->site),
                         (long long)part->layer, (long long)part->head);
    if (part->position < -1 || part->position >= pair->length)
        return mha__fail(err, MHA_ERR_ARG, "parts[%lld]: position must be from -1 to %lld (got %lld)", (long long)index,
                         (long long)pair->length - 1, (long long)part->position);
    return MHA_OK;
}

mha_status mha_patch_together(const mha_prompt_pair *pair, mha_patch_direction direction, const mha_patch_part *parts,
                              int64_t count, double *metrics, mha_error *err)
{
    MHA__TRY(mha__pair_check(pair, (int)direction, metrics, "mha_patch_together", err));
    if (count < 0 || (count > 0 && !parts))
        return mha__fail(err, MHA_ERR_ARG, "mha_patch_together: parts must have `count` elements (got %lld)",
                         (long long)count);
    for (int64_t n = 0; n < count; n++)
        MHA__TRY(check_part(pair, &parts[n], n, err));
    const mha__run_record *base = mha__base_run(pair, direction), *source = mha__source_run(pair, direction);
    mha__fill_metrics(base, 1, metrics);
    if (count == 0) return MHA_OK;
    mha__patch *patches = mha__calloc(pair->ctx, (size_t)count, sizeof *patches);
    if (!patches) return mha__no_memory(err, (size_t)count * sizeof *patches, "parts to patch");
    for (int64_t n = 0; n < count; n++)
        patches[n] = patch_of(pair, source, &parts[n]);
    const mha__patch_job job = {patches, count, 0};
    mha__patch_steps steps = {.what = "patch"};
    const mha_status status = mha__patch_jobs(pair, base, source, &job, 1, metrics, 1, &steps, err);
    mha__free(pair->ctx, patches);
    return status;
}

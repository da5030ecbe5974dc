/* golden_circuits_pair.c - checks the measures of a pair of prompts. */
#include "conformance/circuits/golden_circuits.h"
#include "mha/circuits.h"
#include <stdio.h>

static const char *const direction_names[] = {"denoise", "noise"};

static double *metrics_room(circuits_file *f, int rank, const int64_t *shape)
{
    int64_t count = MHA_CIRCUIT_METRICS;
    for (int n = 0; n < rank; n++)
        count *= shape[n];
    return circuits_room(f, count, sizeof(double));
}

static void metrics_case(circuits_file *f, const char *tensor, int rank, const int64_t *shape, const double *got,
                         const mha_error *failed)
{
    int64_t whole[4] = {MHA_CIRCUIT_METRICS};
    for (int n = 0; n < rank; n++)
        whole[n + 1] = shape[n];
    circuits_case(f, tensor, rank + 1, whole, got, failed);
}

static void check_runs(circuits_file *f, const mha_prompt_pair *pair, const mha_error *failed)
{
    static const char *const names[] = {"clean.metrics", "corrupted.metrics"};
    for (int run = 0; run < 2; run++) {
        double metrics[MHA_CIRCUIT_METRICS] = {0};
        mha_error error = *failed;
        if (pair) mha_prompt_pair_metrics(pair, (mha_prompt_run)run, metrics, &error);
        metrics_case(f, names[run], 0, NULL, metrics, &error);
    }
}

/* ---- activation patching ---- */

static const char *by_suffix(mha_patch_by by)
{
    return by == MHA_BY_POSITION ? "" : by == MHA_BY_HEAD ? ".head" : ".head_pos";
}

static void check_patch(circuits_file *f, const mha_prompt_pair *pair, mha_patch_direction direction, mha_site site,
                        mha_patch_by by, const mha_error *failed)
{
    char name[64];
    int64_t shape[3];
    mha_error error = *failed;
    const int rank = mha_patch_shape(pair, site, by, shape);
    snprintf(name, sizeof name, "%s.%s%s", direction_names[direction], mha_site_name(site), by_suffix(by));
    if (rank == 0 || !circuits_has(f, name)) return;
    double *got = metrics_room(f, rank, shape);
    if (got) mha_patch(pair, site, by, direction, got, &error);
    if (got) metrics_case(f, name, rank, shape, got, &error);
}

static void patching(circuits_file *f, const mha_prompt_pair *pair, const mha_error *failed)
{
    for (int direction = 0; direction < 2; direction++)
        for (int site = 0; site < MHA_SITES; site++)
            for (int by = 0; by <= MHA_BY_HEAD_POSITION && circuits_ok(f); by++)
                check_patch(f, pair, (mha_patch_direction)direction, (mha_site)site, (mha_patch_by)by, failed);
}

/* ---- attribution patching ---- */

static void check_attribution(circuits_file *f, const mha_prompt_pair *pair, mha_patch_direction direction,
                              mha_estimate estimate, mha_site site, mha_patch_by by)
{
    static const char *const estimates[] = {"attr", "ig", "qkfix"};
    char name[64];
    int64_t shape[3];
    mha_error error = {0};
    const int rank = mha_patch_shape(pair, site, by, shape);
    snprintf(name, sizeof name, "%s.%s.%s%s", direction_names[direction], estimates[estimate], mha_site_name(site),
             by_suffix(by));
    if (rank == 0 || !circuits_has(f, name)) return;
    double *got = metrics_room(f, rank, shape);
    if (got) mha_attribution(pair, estimate, site, by, direction, got, &error);
    if (got) metrics_case(f, name, rank, shape, got, &error);
}

static void attributions(circuits_file *f, const mha_prompt_pair *pair)
{
    for (int direction = 0; direction < 2; direction++)
        for (int estimate = 0; estimate <= MHA_ESTIMATE_QKFIX; estimate++)
            for (int site = 0; site < MHA_SITES; site++)
                for (int by = 0; by <= MHA_BY_HEAD_POSITION && circuits_ok(f); by++)
                    check_attribution(f, pair, (mha_patch_direction)direction, (mha_estimate)estimate, (mha_site)site,
                                      (mha_patch_by)by);
}

/* ---- path patching and knockout ---- */

static void check_path(circuits_file *f, const mha_prompt_pair *pair, mha_patch_direction direction,
                       mha_path_receiver to, const mha_error *failed)
{
    static const char *const names[] = {"q", "k", "v", "logits"};
    char name[64];
    int64_t shape[2] = {f->info->layers * f->info->heads, f->info->layers};
    mha_error error = *failed;
    const int rank = to == MHA_PATH_LOGITS ? 1 : 2;
    shape[1] *= to == MHA_PATH_Q ? f->info->heads : f->info->kv_heads;
    snprintf(name, sizeof name, "%s.path.%s", direction_names[direction], names[to]);
    if (!circuits_has(f, name)) return;
    double *got = metrics_room(f, rank, shape);
    if (got) mha_path_patch(pair, to, direction, got, &error);
    if (got) metrics_case(f, name, rank, shape, got, &error);
}

static void paths(circuits_file *f, const mha_prompt_pair *pair, const mha_error *failed)
{
    for (int direction = 0; direction < 2; direction++)
        for (int to = 0; to <= MHA_PATH_LOGITS && circuits_ok(f); to++)
            check_path(f, pair, (mha_patch_direction)direction, (mha_path_receiver)to, failed);
}

static void check_knockout(circuits_file *f, const mha_prompt_pair *pair, mha_knockout_mode mode,
                           mha_knockout_sweep sweep, const mha_error *failed)
{
    static const char *const modes[] = {"renorm", "zero"}, *const sweeps[] = {"head", "layer", "all", "column", "row"};
    char name[64];
    int64_t shape[3];
    mha_error error = *failed;
    const int rank = mha_knockout_shape(pair, sweep, shape);
    snprintf(name, sizeof name, "knockout.%s.%s", modes[mode], sweeps[sweep]);
    if (!circuits_has(f, name)) return;
    double *got = metrics_room(f, rank, shape);
    if (got) mha_knockout_each(pair, mode, sweep, got, &error);
    if (got) metrics_case(f, name, rank, shape, got, &error);
}

static void knockouts(circuits_file *f, const mha_prompt_pair *pair, const mha_error *failed)
{
    for (int mode = 0; mode < 2; mode++)
        for (int sweep = 0; sweep <= MHA_KNOCKOUT_ROW && circuits_ok(f); sweep++)
            check_knockout(f, pair, (mha_knockout_mode)mode, (mha_knockout_sweep)sweep, failed);
}

/* ---- all measures of a pair ---- */

void circuits_pair(circuits_file *f)
{
    mha_prompt_pair *pair = NULL;
    mha_error failed = {0};
    const mha_prompt_pair_options o = {.size = sizeof o,
                                       .clean = f->clean,
                                       .corrupted = f->corrupted,
                                       .length = f->length,
                                       .answer = f->answer,
                                       .wrong = f->wrong,
                                       .position = &f->position,
                                       .noise = f->noise};
    mha_prompt_pair_create(f->model, &o, &pair, &failed);
    check_runs(f, pair, &failed);
    if (pair) patching(f, pair, &failed);
    if (pair) attributions(f, pair);
    if (pair) paths(f, pair, &failed);
    if (pair) knockouts(f, pair, &failed);
    mha_prompt_pair_free(pair);
}

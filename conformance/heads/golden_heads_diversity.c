/* golden_heads_diversity.c - compares similarities of heads, the map and clusters of heads, and the rollouts of single
 * sentences. */
#include "conformance/heads/golden_heads.h"
#include "mha/diversity.h"
#include "output.h"
#include <stdlib.h>
#include <string.h>

/* Similarity measures and their tensor names. A measure compares either all heads or the heads of one layer. */
static const struct kind {
    const char *tensor;
    mha_diversity_kind kind;
    bool all;
} kinds[] = {
    {"cosine", MHA_DIVERSITY_COSINE, false},  {"cosine_centred", MHA_DIVERSITY_COSINE_CENTRED, false},
    {"js", MHA_DIVERSITY_JS, true},           {"js_clark_sum", MHA_DIVERSITY_JS_CLARK, true},
    {"output_cka", MHA_DIVERSITY_CKA, false}, {"output_subspace", MHA_DIVERSITY_SUBSPACE, false},
};

static void check_kind(heads_file *f, const struct kind *k, const mha_diversity *d, const mha_error *failed)
{
    const int64_t L = f->run->info->layers, H = f->run->info->heads, N = L * H;
    const double *want =
        k->all ? heads_want(f, k->tensor, 2, (int64_t[]){N, N}) : heads_want(f, k->tensor, 3, (int64_t[]){L, H, H});
    const int64_t size = k->all ? N * N : L * H * H, columns = k->all ? N : H;
    double *got = want ? heads_room(f, size, sizeof *got) : NULL;
    for (int64_t n = 0; d && got && n < size; n++) {
        const int64_t a = n / columns, b = k->all ? n % N : a / H * H + n % H;
        got[n] = mha_diversity_value(d, k->kind, a / H, a % H, b / H, b % H);
    }
    heads_case(f, "diversity", k->tensor, want, got, size, HEADS_NEAR, failed);
}

static void check_map(heads_file *f, const mha_diversity *d, const mha_error *failed)
{
    const int64_t N = f->run->info->layers * f->run->info->heads;
    const double *want = heads_want(f, "map_xy", 2, (int64_t[]){N, 2});
    heads_case(f, "diversity", "map_xy", want, mha_diversity_map(d), 2 * N, HEADS_NEAR, failed);
    want = heads_want(f, "map_eigenvalues", 1, (int64_t[]){2});
    heads_case(f, "diversity", "map_eigenvalues", want, mha_diversity_eigenvalues(d), 2, HEADS_NEAR, failed);
}

static void check_clusters(heads_file *f, const mha_diversity *d, const mha_error *failed)
{
    const int64_t steps = f->run->info->layers * f->run->info->heads - 1;
    const mha_head_merge *merges = mha_diversity_merges(d);
    double *heights = heads_room(f, steps, sizeof *heights), *ids = heads_room(f, 2 * steps, sizeof *ids);
    for (int64_t n = 0; merges && heights && ids && n < steps; n++) {
        heights[n] = merges[n].height;
        ids[2 * n] = (double)merges[n].a, ids[2 * n + 1] = (double)merges[n].b;
    }
    const double *want = heads_want(f, "cluster_merge_height", 1, (int64_t[]){steps});
    heads_case(f, "diversity", "cluster_merge_height", want, heights, steps, HEADS_NEAR, failed);
    want = heads_want(f, "cluster_merge_ids", 2, (int64_t[]){steps, 2});
    heads_case(f, "diversity", "cluster_merge_ids", want, ids, 2 * steps, HEADS_EXACT, failed);
}

void heads_diversity(heads_run *run)
{
    heads_file f;
    mha_error failed = {0};
    mha_diversity *d = NULL;
    if (heads_open(&f, run, "minilm-diversity.safetensors")) {
        mha_diversity_measure(run->model, run->data, NULL, &d, &failed);
        for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++)
            check_kind(&f, &kinds[n], d, &failed);
        check_map(&f, d, &failed);
        check_clusters(&f, d, &failed);
    }
    mha_diversity_free(d);
    heads_close(&f);
}

void heads_rollout(heads_file *f, const char *tensor, int64_t text)
{
    int64_t length = 0, shape[2] = {-1, -1};
    mha_error failed = {0};
    const double *want = heads_want(f, tensor, 2, shape);
    mha_head_data_ids(f->run->data, text, &length);
    if (want && (shape[0] != length || shape[1] != length))
        verify_fault(&f->entry, "\"%s\" must have the length of sentence %lld", cli_shown(tensor), (long long)text);
    if (!want || !heads_ok(f)) return;
    float *out = heads_room(f, length * length, sizeof *out);
    double *got = heads_room(f, length * length, sizeof *got);
    if (!out || !got) return;
    mha_head_rollout(f->run->model, f->run->data, text, out, &failed);
    for (int64_t n = 0; n < length * length; n++)
        got[n] = (double)out[n];
    heads_case(f, "rollout", tensor, want, got, length * length, HEADS_NEAR, &failed);
}

/* golden_heads_scores.c - compares importance scores; each tensor contains one measure, and all use the same data. */
#include "conformance/heads/golden_heads.h"
#include <string.h>

/* Measures and parameters of the tensors that are not named after their measure. */
static const struct variant {
    const char *tensor, *score;
    double loss_scale;
    int64_t batch_pairs;
    int probes;
} variants[] = {
    {"gradmag_3batches", "gradmag", 0, 4, 0}, /* batches: pairs 0-3, 4-7, ... */
    {"gradmag_scale20", "gradmag", 20, 0, 0},
    {"gate_scale20", "gate", 20, 0, 0},
    {"jacobian_probe4", "jacobian_probe", 0, 0, 4},
};

static bool score_of(const char *key, mha_importance_score *score)
{
    for (int n = 0; n < MHA_IMPORTANCE_SCORES; n++) {
        *score = n;
        if (strcmp(mha_importance_score_key(n), key) == 0) return true;
    }
    return false;
}

static bool options_of(const char *tensor, mha_head_loss loss, mha_importance_options *o)
{
    const struct variant *v = variants;
    const size_t all = sizeof variants / sizeof *variants;
    while (v < variants + all && strcmp(v->tensor, tensor) != 0)
        v++;
    *o = (mha_importance_options){.size = sizeof *o, .loss = loss};
    if (v == variants + all) return score_of(tensor, &o->by);
    o->loss_scale = v->loss_scale, o->batch_texts = v->batch_pairs, o->probes = v->probes;
    return score_of(v->score, &o->by);
}

void heads_scores(heads_file *f, const char *group, const mha_model *model, const mha_head_data *data,
                  mha_head_loss loss)
{
    const char *tensor;
    json_t *value;
    mha_importance_options o;
    const mha_model_info *m = mha_model_describe(model);
    const int64_t size = m->layers * m->heads;
    json_object_foreach((json_t *)f->entry.object, tensor, value)
    {
        mha_error failed = {0};
        mha_importance *result = NULL;
        if (!options_of(tensor, loss, &o) || !heads_ok(f)) continue;
        const double *want = heads_want(f, tensor, 2, (int64_t[]){m->layers, m->heads});
        if (!want) continue;
        mha_importance_measure(model, data, &o, &result, &failed);
        heads_case(f, group, tensor, want, mha_importance_values(result, NULL), size, HEADS_NEAR, &failed);
        mha_importance_free(result);
    }
}

void heads_loss(heads_file *f, const char *group, const char *tensor, const mha_model *model, const mha_head_data *data,
                const mha_importance_options *options)
{
    mha_error failed = {0};
    mha_importance *result = NULL;
    const double *want = heads_want(f, tensor, 1, (int64_t[]){1});
    if (!want) return;
    mha_importance_measure(model, data, options, &result, &failed);
    const double loss = mha_importance_loss(result);
    heads_case(f, group, tensor, want, &loss, 1, HEADS_NEAR, &failed);
    mha_importance_free(result);
}

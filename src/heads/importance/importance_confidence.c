/* importance_confidence.c - confidence: the largest attention weight of each row, averaged over all rows. Each text is
 * therefore weighted by its number of rows. One variant of the score excludes special tokens (Voita et al. 2019 exclude
 * one of them), both as rows and as keys; the remaining weights of a row are not renormalized. */
#include "base/error.h"
#include "heads/importance/importance_run.h"

typedef struct seen {
    mha__importance_job *s;
    const mha__packed *batch;
    bool all; /* true = include special tokens */
} seen;

static const uint8_t *kinds_of(const seen *to, int64_t b)
{
    return mha__head_data_kinds(to->s->data, to->s->text[to->batch->place[b]]);
}

static double greatest(const float *p, const uint8_t *kinds, int64_t keys)
{
    float max = 0;
    for (int64_t j = 0; j < keys; j++)
        if (!(kinds[j] & MHA_TOKEN_SPECIAL) && !(p[j] <= max)) max = p[j]; /* propagates NAN */
    return (double)max;
}

static void on_rows(void *user, int64_t layer, const mha_attn_rows *rows)
{
    const seen *to = user;
    const uint8_t *kinds = kinds_of(to, rows->sequence);
    double *sum = mha__importance_part(to->s, to->batch, rows->sequence) + layer * to->s->info->heads + rows->head;
    for (int64_t r = 0; r < rows->count; r++) {
        const float *p = (const float *)rows->p + r * rows->stride;
        if (to->all)
            *sum += rows->largest[r];
        else if (!(kinds[rows->first + r] & MHA_TOKEN_SPECIAL))
            *sum += greatest(p, kinds, rows->keys);
    }
}

static double rows_of(const seen *to, int64_t b)
{
    const uint8_t *kinds = kinds_of(to, b);
    const int64_t length = to->batch->input.starts[b + 1] - to->batch->input.starts[b];
    int64_t count = 0;
    for (int64_t t = 0; t < length; t++)
        count += to->all || !(kinds[t] & MHA_TOKEN_SPECIAL);
    return (double)count;
}

mha_status mha__group_confidence(mha__importance_job *s, mha_error *err)
{
    mha__packed batch;
    seen to = {.s = s, .batch = &batch, .all = s->options.by == MHA_IMPORTANCE_CONFIDENCE};
    const mha_model_output output = {.size = sizeof output, .on_rows = on_rows, .user = &to};
    mha__packer_begin(&s->packer, s->text, s->texts);
    while (mha__packer_next(&s->packer, &batch)) {
        for (int64_t b = 0; b < batch.input.batch; b++)
            s->weight[batch.place[b]] = rows_of(&to, b);
        MHA__TRY(mha_model_forward(s->model, &batch.input, &output, err));
        MHA__TRY(mha__importance_step(s, &batch, err));
    }
    return MHA_OK;
}

/* score_confidence.c - the greatest weight of each row, as a mean over rows: a text weighs as many as it has. */
#include "heads/scoring.h"

typedef struct seen {
    mha__scoring *s;
    const mha__packed *batch;
} seen;

static int on_stats(void *user, const mha_model_stats *stats)
{
    const seen *to = user;
    const int64_t *starts = to->batch->input.starts, H = to->s->info->heads;
    for (int64_t b = 0; b < to->batch->input.batch; b++)
        for (int64_t h = 0; h < stats->heads; h++) {
            double *sum = mha__scoring_part(to->s, to->batch, b) + stats->layer * H + h;
            for (int64_t r = starts[b]; r < starts[b + 1]; r++)
                *sum += (double)stats->row_max[h * to->batch->tokens + r];
        }
    return 0;
}

mha_status mha__group_confidence(mha__scoring *s, mha_error *err)
{
    mha__packed batch;
    mha__packer_begin(&s->packer, s->text, s->texts);
    while (mha__packer_next(&s->packer, &batch)) {
        seen to = {s, &batch};
        const mha_model_output output = {.size = sizeof output, .on_stats = on_stats, .user = &to};
        for (int64_t b = 0; b < batch.input.batch; b++)
            s->weight[batch.place[b]] = (double)(batch.input.starts[b + 1] - batch.input.starts[b]);
        mha_status status = mha_model_forward(s->model, &batch.input, &output, err);
        if (status == MHA_OK) status = mha__scoring_step(s, &batch, err);
        if (status != MHA_OK) return status;
    }
    return MHA_OK;
}

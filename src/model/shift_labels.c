/* shift_labels.c - computes the input of a decoder from the labels that it must predict, as transformers does. */
#include "base/error.h"
#include "mha/seq2seq.h"
#include "model/model_struct.h"

/* Returns the first token of a sequence: of mBART, the last label, if no label before it is padding. */
static int32_t first_token(const mha_model *m, const int32_t *labels, int64_t length)
{
    const mha__config *c = &m->config;
    int64_t real = 0;
    if (!c->family->code_first) return (int32_t)c->label_start;
    for (int64_t i = 0; i < length; i++)
        real += labels[i] != MHA_IGNORE && labels[i] != c->pad;
    const int32_t label = labels[real > 0 ? real - 1 : 0];
    return label == MHA_IGNORE ? (int32_t)c->pad : label;
}

/* Checks that every label is a token or ignored. */
static mha_status check_labels(const mha_model *m, const int32_t *labels, int64_t count, mha_error *err)
{
    for (int64_t n = 0; n < count; n++)
        if (labels[n] != MHA_IGNORE && (labels[n] < 0 || labels[n] >= m->config.vocab))
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_model_shift_labels: labels[%lld] must be from 0 to %lld, or MHA_IGNORE (got %d)",
                             (long long)n, (long long)m->config.vocab - 1, labels[n]);
    return MHA_OK;
}

mha_status mha_model_shift_labels(const mha_model *model, const int32_t *labels, int64_t batch, int64_t length,
                                  int32_t *ids, mha_error *err)
{
    if (!model || !labels || !ids)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_shift_labels: model, labels and ids must not be NULL");
    if (batch < 0 || length < 1)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_shift_labels: batch must be at least 0, and length at least 1 (got %lld, %lld)",
                         (long long)batch, (long long)length);
    const bool starts = model->config.family->code_first || model->config.label_start >= 0;
    if (!model->encoder || model->config.pad < 0 || !starts)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "mha_model_shift_labels: model must be an encoder-decoder with decoder_start_token_id and "
                         "pad_token_id (got %s)",
                         model->info.family);
    MHA__TRY(check_labels(model, labels, batch * length, err));
    for (int64_t b = 0; b < batch; b++) {
        const int32_t *row = labels + b * length;
        const int32_t first = first_token(model, row, length);
        for (int64_t i = length - 1; i > 0; i--)
            ids[b * length + i] = row[i - 1] == MHA_IGNORE ? (int32_t)model->config.pad : row[i - 1];
        ids[b * length] = first;
    }
    return MHA_OK;
}

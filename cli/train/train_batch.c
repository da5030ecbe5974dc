/* train_batch.c - copies the sequences of a step into its batches. */
#include "output.h"
#include "train/train_run.h"

static int mask_tokens(const train_run *run, int64_t index, int32_t *ids, int32_t *labels)
{
    mha_error error = {0};
    const mha_train_mask_options options = {.size = sizeof options,
                                            .length = run->t.length,
                                            .vocab = run->form.data.vocab,
                                            .fraction = run->t.mask,
                                            .mask = run->form.mask,
                                            .seed = (uint64_t)run->t.seed};
    const mha_status status = mha_train_mask_tokens(run->form.data.tokenizer, &options, index, ids, labels, &error);
    return status == MHA_OK ? CLI_DONE : cli_fail(run->s, &error);
}

int train_batch_put(train_run *run, const mha_train_data *data, int64_t sequence, int64_t index, int64_t place)
{
    const int64_t width = run->t.batch, batch = place / width, at = place % width;
    int64_t *starts = run->starts ? run->starts + batch * (width + 1) : NULL;
    int32_t *ids = run->ids + batch * width * run->t.length + (starts ? starts[at] : at * run->t.length);
    const int64_t count = mha_train_data_sequence(data, sequence, ids);
    if (starts) starts[at + 1] = starts[at] + count;
    return run->labels ? mask_tokens(run, index, ids, run->labels + place * run->t.length) : CLI_DONE;
}

int train_batch_fill(train_run *run, int64_t step)
{
    const train_settings *t = &run->t;
    const int64_t all = t->accumulate * t->batch, sequences = run->learn.count;
    int code = CLI_DONE;
    for (int64_t n = 0; n < all && code == CLI_DONE; n++) {
        const int64_t index = (step - 1) * all + n;
        const int64_t sequence =
            mha_train_sequence_order((uint64_t)t->seed, index / sequences, index % sequences, sequences);
        code = train_batch_put(run, run->learn.data, run->learn.first + sequence, index, n);
    }
    return code;
}

int64_t train_batch_tokens(const train_run *run)
{
    const train_settings *t = &run->t;
    if (!run->starts) return t->accumulate * t->batch * t->length;
    int64_t tokens = 0;
    for (int64_t n = 0; n < t->accumulate; n++)
        tokens += run->starts[n * (t->batch + 1) + t->batch];
    return tokens;
}

/* train_eval.c - separates held-out sequences and computes the loss on them. */
#include "output.h"
#include "session.h"
#include "train/train_run.h"
#include <math.h>

/* ---- held-out sequences ---- */

static int read_held(train_run *run)
{
    const train_settings *t = &run->t;
    mha_train_data_options o = run->form.data;
    o.length = t->length;
    o.shorten = 0;
    const int code = t->file.count ? train_inputs_texts(run->s, &o, &t->eval, t->documents, &run->held)
                                   : train_inputs_ids(run->s, &o, &t->eval, &run->held);
    if (code != CLI_DONE) return code;
    run->evaluation = (train_span){run->held, 0, mha_train_data_describe(run->held)->sequences};
    return CLI_DONE;
}

int train_run_split(train_run *run)
{
    const train_settings *t = &run->t;
    const int64_t all = mha_train_data_describe(run->data)->sequences,
                  aside = (int64_t)ceil(t->eval_share * (double)all);
    run->learn = (train_span){run->data, 0, all};
    if (t->eval.count) return read_held(run);
    if (aside == 0) return CLI_DONE;
    if (aside == all)
        return cli_error(run->s, CLI_REFUSED,
                         "--eval-share must leave a sequence for training (got %g of %lld sequences)", t->eval_share,
                         (long long)all);
    run->evaluation = (train_span){run->data, all - aside, aside};
    run->learn.count = all - aside;
    return CLI_DONE;
}

/* ---- held-out loss ---- */

/* Copies `count` held-out sequences into the first batch, from position `at` of a fixed order (the order of epoch -1).
 * Every evaluation uses the same masks. */
static int fill(train_run *run, int64_t at, int64_t count)
{
    const uint64_t seed = (uint64_t)run->t.seed;
    const train_span *held = &run->evaluation;
    int code = CLI_DONE;
    for (int64_t n = 0; n < count && code == CLI_DONE; n++) {
        const int64_t sequence = held->first + mha_train_sequence_order(seed, -1, at + n, held->count);
        code = train_batch_put(run, held->data, sequence, -1 - at - n, n);
    }
    return code;
}

int train_run_evaluate(train_run *run, double *loss)
{
    const int64_t max = run->t.eval_sequences, count = run->evaluation.count < max ? run->evaluation.count : max;
    double sum = 0;
    int64_t labels = 0;
    for (int64_t at = 0; at < count && !cli_stopped(); at += run->t.batch) {
        mha_error error = {0};
        double mean;
        int64_t counted;
        mha_model_input input = run->inputs[0];
        const mha_train_batch batch = {.input = &input, .labels = run->labels};
        if (count - at < input.batch) input.batch = count - at;
        const int code = fill(run, at, input.batch);
        if (code != CLI_DONE) return code;
        if (mha_trainer_loss(run->trainer, &batch, 1, &mean, &counted, &error) != MHA_OK)
            return cli_fail(run->s, &error);
        sum += mean * (double)counted;
        labels += counted;
    }
    if (labels && !cli_stopped()) *loss = sum / (double)labels;
    return CLI_DONE;
}

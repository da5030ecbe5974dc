/* train_run.c - the steps. */
#include "train_run.h"

#include "output.h"
#include "session.h"
#include "train_draw.h"

/* ---- what a step reads ---- */

/* The sequences of a step follow from its number alone. */
static void fill(train_run *run, int64_t step)
{
    const train_settings *t = &run->t;
    const int64_t all = t->accumulate * t->batch, sequences = run->data.sequences;
    for (int64_t n = 0; n < all; n++) {
        const int64_t number = (step - 1) * all + n;
        int32_t *ids = run->ids + n * t->length;
        const int64_t sequence =
            train_draw_sequence((uint64_t)t->seed, number / sequences, number % sequences, sequences);
        train_data_sequence(&run->data, sequence, ids);
        if (run->labels)
            train_draw_mask(&run->data.form, t->mask, (uint64_t)t->seed, number, ids, run->labels + n * t->length);
    }
}

/* ---- talk ---- */

/* "step 120 of 2000   loss 3.412   5200 tokens/s   4 min left" */
static void describe(const train_run *run, const train_record *r, char *line, size_t room)
{
    char left[CLI_DURATION];
    const double taken = cli_seconds() - run->start, each = taken / (double)r->step;
    snprintf(line, room, "step %lld of %lld   loss %.4f   %.0f tokens/s   %s left", (long long)r->step, run->t.steps,
             r->loss, (double)r->tokens / taken, cli_duration(each * (double)(run->t.steps - r->step), left));
}

/* ---- steps ---- */

static int take_step(train_run *run)
{
    cli_session *s = run->s;
    const train_settings *t = &run->t;
    mha_error error = {0};
    mha_train_report report;
    fill(run, mha_trainer_step_count(run->trainer) + 1);
    if (mha_trainer_step(run->trainer, run->batches, t->accumulate, &report, &error) != MHA_OK) {
        const int code = cli_fail(s, &error);
        cli_say(s, "%s holds the last checkpoint", cli_shown(s->options.out));
        return code;
    }
    const train_record record = {.step = report.step,
                                 .tokens = report.step * t->accumulate * t->batch * t->length,
                                 .loss = report.loss,
                                 .rate = report.rate,
                                 .norm = report.norm,
                                 .seconds = cli_seconds() - run->start};
    return train_log_add(s, &run->log, &record);
}

/* Saves, and says so. */
static int keep(train_run *run)
{
    char line[160];
    const int code = train_run_save(run);
    const train_record *r = &run->log.record[run->log.count - 1];
    if (code != CLI_DONE || r->step == 0) return code;
    describe(run, r, line, sizeof line);
    cli_say(run->s, "%s   saved", line);
    return code;
}

static int stop(const train_run *run)
{
    cli_say(run->s, "stopped; mha train --resume -o %s goes on", cli_shown(run->s->options.out));
    return cli_stopped();
}

int train_run_steps(train_run *run)
{
    char line[160];
    cli_signals_hold();
    int code = run->goes_on ? CLI_DONE : keep(run);
    for (int64_t step = run->begun; code == CLI_DONE && step < run->t.steps;) {
        code = take_step(run);
        if (code != CLI_DONE) break;
        step = mha_trainer_step_count(run->trainer);
        describe(run, &run->log.record[run->log.count - 1], line, sizeof line);
        cli_progress_line(line);
        const bool last = step == run->t.steps || cli_stopped();
        if (last || step % run->t.save_every == 0) code = keep(run);
        if (code == CLI_DONE && cli_stopped() && step < run->t.steps) code = stop(run);
    }
    cli_progress_clear();
    return code;
}

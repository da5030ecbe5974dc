/* train_run.c - the training loop. */
#include "train/train_run.h"

#include "output.h"
#include "session.h"
#include <math.h>

/* ---- progress ---- */

/* Formats the progress line, for example "step 120 of 2000   loss 3.4120   5200 tokens/s   4 min left". */
static void describe(const train_run *run, const mha_train_record *r, char *line, size_t room)
{
    char left[CLI_DURATION];
    /* The time excludes the evaluation before the first step, which the log may not contain. */
    const mha_train_record *first = mha_train_log_record(run->log, 0);
    const double taken = cli_seconds() - run->start - first->seconds, each = taken / (double)(r->step - first->step);
    snprintf(line, room, "step %lld of %lld   loss %.4f   %.0f tokens/s   %s left", (long long)r->step, run->t.steps,
             r->loss, (double)r->tokens / taken, cli_duration(each * (double)(run->t.steps - r->step), left));
}

/* ---- steps ---- */

static bool is_due(const train_run *run, int64_t step, long long every)
{
    return step % train_settings_every(&run->t, every) == 0 || step == run->t.steps;
}

/* Adds a record to the log, with evaluations and samples when they are due. */
static int record(train_run *run, const mha_train_record *of_step)
{
    mha_error error = {0};
    mha_train_record r = *of_step;
    int code = CLI_DONE;
    r.size = sizeof r;
    r.eval_loss = NAN;
    const bool leads = train_run_leads(run);
    if (leads && run->evaluation.count && is_due(run, r.step, run->t.eval_every))
        code = train_run_evaluate(run, &r.eval_loss);
    if (leads && code == CLI_DONE && is_due(run, r.step, run->t.sample_every)) code = train_run_sample(run, &r);
    r.seconds = cli_seconds() - run->start;
    if (code != CLI_DONE) return code;
    return mha_train_log_add(run->log, &r, &error) == MHA_OK ? CLI_DONE : cli_fail(run->s, &error);
}

/* Reports an error that ends the run, and names the folder of the last checkpoint. */
static int lose(const train_run *run, const mha_error *error)
{
    const int code = cli_fail(run->s, error);
    cli_say(run->s, "%s contains the last checkpoint", cli_shown(run->s->options.out));
    return code;
}

static int take_step(train_run *run)
{
    const train_settings *t = &run->t;
    mha_error error = {0};
    mha_train_report report;
    const int code = train_batch_fill(run, mha_trainer_step_count(run->trainer) + 1);
    if (code != CLI_DONE) return code;
    if (mha_trainer_step(run->trainer, run->batches, t->accumulate, &report, &error) != MHA_OK)
        return lose(run, &error);
    const mha_train_record r = {.step = report.step,
                                .tokens = train_run_last(run)->tokens + train_batch_tokens(run),
                                .loss = report.loss,
                                .rate = report.rate,
                                .norm = report.norm,
                                .open_heads = t->gates ? report.open : NAN};
    return record(run, &r);
}

/* Saves a checkpoint if the weights give a finite loss. The loss of a step is computed with the weights before the
 * step, so the updated weights are tested on the data of the next step. */
static int save(train_run *run)
{
    mha_error error = {0};
    int code = train_run_leads(run) ? train_batch_fill(run, mha_trainer_step_count(run->trainer) + 1) : CLI_DONE;
    if (code != CLI_DONE) return code;
    if (train_run_leads(run) &&
        mha_trainer_loss(run->trainer, run->batches, run->t.accumulate, NULL, NULL, &error) != MHA_OK)
        return lose(run, &error);
    code = train_run_save(run);
    if (code != CLI_DONE) cli_say(run->s, "%s contains the last checkpoint", cli_shown(run->s->options.out));
    return code;
}

/* Evaluates the model, generates samples and saves a checkpoint before the first step. */
static int begin(train_run *run)
{
    const mha_train_record zero = {.loss = NAN, .rate = NAN, .norm = NAN, .open_heads = NAN};
    int code = record(run, &zero);
    return code == CLI_DONE ? train_run_save(run) : code;
}

/* Logs the progress after an evaluation or a checkpoint; otherwise updates the progress line. */
static void tell(const train_run *run, bool kept)
{
    char line[160], eval[80] = "", open[80] = "";
    if (!train_run_leads(run)) return;
    const mha_train_record *r = train_run_last(run);
    describe(run, r, line, sizeof line);
    if (!isnan(r->eval_loss)) snprintf(eval, sizeof eval, "   held-out loss %.4f", r->eval_loss);
    if (!isnan(r->open_heads)) snprintf(open, sizeof open, "   %.1f heads", r->open_heads);
    if (kept || !isnan(r->eval_loss))
        cli_say(run->s, "%s%s%s%s", line, open, eval, kept ? "   saved" : "");
    else
        cli_progress_line(line);
}

static int stop(const train_run *run)
{
    cli_progress_clear();
    cli_say(run->s, "stopped; continue with mha train --resume -o %s", cli_shown(run->s->options.out));
    return cli_stopped();
}

int train_run_steps(train_run *run)
{
    cli_signals_hold();
    int code = run->resumed ? CLI_DONE : begin(run);
    for (int64_t step = run->begun; code == CLI_DONE && step < run->t.steps;) {
        code = take_step(run);
        if (code != CLI_DONE) break;
        step = mha_trainer_step_count(run->trainer);
        bool stopped = false;
        code = train_run_stopped(run, &stopped);
        const bool keeps = is_due(run, step, run->t.save_every) || stopped;
        if (code == CLI_DONE && keeps) code = save(run);
        if (code == CLI_DONE) tell(run, keeps);
        if (code == CLI_DONE && keeps) code = train_run_stopped(run, &stopped);
        if (code == CLI_DONE && keeps && stopped && step < run->t.steps) return stop(run);
    }
    cli_progress_clear();
    if (code == CLI_DONE && train_run_leads(run)) code = train_run_export(run);
    return code == CLI_DONE ? train_run_sync(run) : code;
}

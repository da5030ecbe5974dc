/* train_processes.c - synchronizes the ranks of mha-mpi in a training run. All ranks compute the steps. Only rank 0
 * writes checkpoints, log and export, evaluates, and samples. */
#include "output.h"
#include "session.h"
#include "train/train_run.h"
#include <string.h>

static const mha_train_ranks *ranks_of(const train_run *run)
{
    return run->s->ranks ? run->s->ranks->train : NULL;
}

bool train_run_leads(const train_run *run)
{
    return !run->s->ranks || run->s->ranks->rank == 0;
}

int train_run_sync(const train_run *run)
{
    const mha_train_ranks *ranks = ranks_of(run);
    mha_error error = {0};
    if (!ranks || ranks->agree(ranks->user, MHA_OK, 1, &error) == MHA_OK) return CLI_DONE;
    return cli_fail(run->s, &error);
}

int train_run_compare_ranks(const train_run *run)
{
    const mha_train_ranks *ranks = ranks_of(run);
    mha_error error = {0};
    if (!ranks) return CLI_DONE;
    int code = train_run_sync(run);
    const char *digest = mha_train_data_describe(run->data)->digest;
    if (code == CLI_DONE && ranks->same(ranks->user, "the data", digest, strlen(digest), &error) != MHA_OK)
        code = cli_fail(run->s, &error);
    if (code == CLI_DONE && mha_trainer_compare_ranks(run->trainer, &error) != MHA_OK) code = cli_fail(run->s, &error);
    return code;
}

int train_run_check_ranks(const train_run *run)
{
    const int ranks = ranks_of(run) ? ranks_of(run)->ranks : 1;
    const long long workers = train_settings_workers(&run->t);
    const train_list *files = &run->t.file;
    if (ranks & (ranks - 1)) return cli_usage(run->s, "the number of processes must be a power of two (got %d)", ranks);
    if (workers < ranks)
        return cli_usage(run->s, "--workers must be at least the number of processes, %d (got %lld)", ranks, workers);
    for (int n = 0; n < files->count && ranks > 1; n++)
        if (strcmp(files->item[n], "-") == 0)
            return cli_usage(run->s, "with several processes, -f must name a file (got -)");
    return CLI_DONE;
}

int train_run_stopped(const train_run *run, bool *stopped)
{
    const mha_train_ranks *ranks = ranks_of(run);
    mha_error error = {0};
    int64_t count = cli_stopped() != 0;
    const int code = train_run_sync(run); /* rank 0 may still evaluate, or may have failed */
    if (code != CLI_DONE) return code;
    if (ranks && ranks->add_integers(ranks->user, &count, 1, &error) != MHA_OK) return cli_fail(run->s, &error);
    *stopped = count > 0;
    return CLI_DONE;
}

/* prune_texts.c - texts to choose and fit on, and others to judge on: never the same. */
#include <stdlib.h>

#include "output.h"
#include "prune_job.h"

enum { FOURTH = 4 };

static int tokens_of(prune_job *job, const char *const *texts, int64_t count, mha_head_data **data)
{
    mha_error error = {0};
    if (mha_head_data_of_texts(job->model, texts, count, NULL, data, &error) != MHA_OK)
        return cli_refuse(job->session, &error);
    return CLI_DONE;
}

/* Every fourth text is held out, so that both parts are alike. */
static int split(prune_job *job)
{
    const int64_t count = job->texts.count;
    const char **parts = malloc((size_t)count * sizeof *parts);
    int64_t learned = 0, held = count;
    if (count < FOURTH)
        return free(parts),
               cli_usage(job->session, "-f has %lld texts: with fewer than %d, give others with --test FILE",
                         (long long)count, FOURTH);
    if (!parts) return cli_error(job->session, CLI_FAILED, "out of memory for the texts");
    for (int64_t i = count - 1; i >= 0; i--)
        if (i % FOURTH == FOURTH - 1) parts[--held] = job->texts.text[i];
    for (int64_t i = 0; i < count; i++)
        if (i % FOURTH != FOURTH - 1) parts[learned++] = job->texts.text[i];
    int code = tokens_of(job, parts, learned, &job->data);
    if (code == CLI_DONE) code = tokens_of(job, parts + held, count - held, &job->held);
    free(parts);
    return code;
}

int prune_texts_read(prune_job *job, bool learns)
{
    cli_session *s = job->session;
    int code = CLI_DONE;
    if (learns && !s->options.file) return cli_usage(s, "give texts to choose and fit on with -f FILE");
    if (s->options.file) code = cli_texts_read_file(s, s->options.file, &job->texts);
    if (code == CLI_DONE && job->given.test) code = cli_texts_read_file(s, job->given.test, &job->test_texts);
    if (code != CLI_DONE) return code;
    const cli_texts *f = &job->texts, *test = &job->test_texts;
    if (test->count) {
        job->split = "--test";
        code = tokens_of(job, test->text, test->count, &job->held);
        return code == CLI_DONE && learns ? tokens_of(job, f->text, f->count, &job->data) : code;
    }
    job->split = learns ? "every fourth of -f" : "-f";
    if (!f->count) return CLI_DONE;
    return learns ? split(job) : tokens_of(job, f->text, f->count, &job->held);
}

/* cmd_verify.c - `mha verify`: checks this build against a double-precision reference, or against a folder of recorded
 * results. */
#include "output.h"
#include "verify/verify.h"
#include <string.h>

static const char *golden, *lm;
static int strict;

static const struct poptOption options[] = {
#ifdef MHA_CONFORMANCE
    {"golden", 0, POPT_ARG_STRING, &golden, 0, "folder of recorded results: index.json and tensor files", "DIR"},
    {"lm", 0, POPT_ARG_STRING, &lm, 0, "folder of the language model whose heads are recorded", "FOLDER"},
#endif
    {"strict", 0, POPT_ARG_NONE, &strict, 0, "also fail if a case is not supported", NULL},
    POPT_TABLEEND,
};

static int check_build(cli_session *session, verify_log *log)
{
#ifdef MHA_CONFORMANCE
    log->lm = lm;
    if (golden) return verify_golden(session, golden, log);
#endif
    return verify_self(session, log);
}

static int run(cli_session *session)
{
    if (session->arg_count) return cli_usage(session, "unexpected argument \"%s\"", cli_shown(session->args[0]));
    if (session->options.model && !golden) return cli_usage(session, "-m requires --golden");
    if (lm && !golden) return cli_usage(session, "--lm requires --golden");
    verify_log log;
    verify_log_open(&log);
    int code = check_build(session, &log);
    if (code == CLI_DONE) code = verify_print(session, &log, strict);
    verify_log_close(&log);
    return code;
}

#define WORST "In JSON, \"worst\" is the largest error divided by its tolerance."

const cli_command cli_verify = {
    .name = "verify",
    .usage = "",
#ifdef MHA_CONFORMANCE
    .summary = "check this build against double-precision or recorded results",
    .shared = CLI_MODEL | CLI_JSON,
    .details =
        "Without --golden, the command compares every instruction set of this CPU with a double-precision reference on "
        "fixed problems.\n"
        "With --golden DIR, it compares this build with the recorded results in DIR: attention, ops, seeds (the "
        "walk-throughs), models or circuits (-m FOLDER_OF_MODELS), minilm (-m MODEL) or heads (-m MODEL --lm FOLDER). "
        "The exit status is 4 if a case fails, and 3 if DIR is malformed, has an unknown format, or has an entry in "
        "index.json "
        "that mha does not check.\n" WORST,
#else
    .summary = "check this build against double-precision results",
    .shared = CLI_JSON,
    .details =
        "The command compares every instruction set of this CPU with a double-precision reference on fixed problems. "
        "The exit status is 4 if a case fails.\n" WORST,
#endif
    .options = options,
    .examples = "mha verify\n"
                "mha verify --strict --json\n",
    .run = run,
};

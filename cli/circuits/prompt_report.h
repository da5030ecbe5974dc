/* prompt_report.h - what was measured: the prompts, the answers of both runs, and the output of grids in every format.
 * */
#ifndef CLI_CIRCUITS_PROMPT_REPORT_H
#define CLI_CIRCUITS_PROMPT_REPORT_H

#include "circuits/effect_grid.h"

/* The results of a command. */
typedef struct prompt_report {
    const mha_model *model;
    const prompt_cases *cases;
    const mha_prompt_pair *first; /* the pair of the first case */
    mha_circuit_metric metric;
    int top;
    effect_grid *grids; /* [count] finished */
    int count;
} prompt_report;

/* Opens the pair of a case; prints a message and returns an exit code on failure. */
int prompt_pair_open(const cli_session *session, const mha_model *model, const prompt_case *one,
                     mha_prompt_pair **pair);
/* Prints prompts and answers of both runs. */
void prompt_report_head(const cli_session *session, const prompt_report *report);
/* Logs warnings, and writes the grids as text, JSON or CSV to the output and, with -o, as a page or figure. Returns an
 * exit code. */
int prompt_report_put(cli_session *session, const prompt_report *report);

/* Parses a metric name; CLI_USAGE for an unknown name, and for logit-diff without a wrong answer. NULL = logit-diff, or
 * without a wrong answer logprob. */
int prompt_metric(const cli_session *session, const char *name, const prompt_request *request,
                  mha_circuit_metric *metric);
const char *prompt_metric_name(mha_circuit_metric metric);

#endif

/* scores_file.h - reads head scores that `mha heads --by SCORE` wrote with --json or --csv. */
#ifndef CLI_INPUT_SCORES_FILE_H
#define CLI_INPUT_SCORES_FILE_H

#include "command.h"

/* Reads scores into values [layers, H]; elements beyond the heads of a layer are NAN. `path` "-" is standard input. The
 * file must contain exactly one finite score for every head of the model; the error names the line or key. Returns an
 * exit code and prints any error. */
int scores_file_read(const cli_session *session, const char *path, const mha_model *model, double *values);

#endif

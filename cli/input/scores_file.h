/* scores_file.h - scores of heads that `mha heads --by SCORE` wrote, as --json or as --csv, for the commands that use
 * them. */
#ifndef CLI_INPUT_SCORES_FILE_H
#define CLI_INPUT_SCORES_FILE_H

#include "command.h"

/* Fills values [layers, H] of the model, NAN where a layer has no such head; "-" is standard input. Whatever is not a
 * finite score for every head, and for no other, is refused with its place in the file. Returns an exit code; the
 * message has been printed. */
int scores_file_read(const cli_session *session, const char *path, const mha_model *model, double *values);

#endif

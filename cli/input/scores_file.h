/* scores_file.h - reads head scores that `mha heads --by SCORE` wrote with --json or --csv. */
#ifndef CLI_INPUT_SCORES_FILE_H
#define CLI_INPUT_SCORES_FILE_H

#include "command.h"
#include "input/head_part.h"

/* Reads the scores of `count` parts, whose values [layers, H] follow each other; elements beyond the heads of a layer
 * are NAN. `path` "-" is standard input. The file must contain exactly one finite score for every head of the parts;
 * the error names the line or key. The scores of source/target pairs name the kind of each head: they are read for all
 * parts of an encoder-decoder, or for its encoder. Scores without kinds are read for one part. Returns an exit code and
 * prints any error. */
int scores_file_read(const cli_session *session, const char *path, const head_part *parts, int count, double *values);

#endif

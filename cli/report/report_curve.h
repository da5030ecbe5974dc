/* report_curve.h - the curve of a pruning, as `mha prune --search --json` prints it, for the report. */
#ifndef CLI_REPORT_REPORT_CURVE_H
#define CLI_REPORT_REPORT_CURVE_H

#include <jansson.h>

#include "command.h"

/* Reads {..., curve: [{heads, loss, ...}]}: *curve is that list, a new reference, each of its points having numbers
 * alone. Returns an exit code; the message has been printed. */
int report_curve_read(const cli_session *s, const char *path, json_t **curve);

#endif

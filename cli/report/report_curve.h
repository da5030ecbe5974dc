/* report_curve.h - reads the pruning curve printed by `mha prune --search --json`. */
#ifndef CLI_REPORT_REPORT_CURVE_H
#define CLI_REPORT_REPORT_CURVE_H

#include "command.h"
#include <jansson.h>

/* Reads {..., curve: [{heads, loss, ...}]}. *curve is a new reference to a copy whose points contain only numbers and
 * booleans. Returns an exit code and prints any error. */
int report_curve_read(const cli_session *s, const char *path, json_t **curve);

#endif

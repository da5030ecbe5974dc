/* report_live.h - the page of `mha live` inside a report. */
#ifndef CLI_REPORT_REPORT_LIVE_H
#define CLI_REPORT_REPORT_LIVE_H

#include "command.h"
#include <jansson.h>

/* Builds the page of `mha live` for the model that was opened last and a text, as a JSON string. Returns an exit
 * code. */
int report_live_page(const cli_session *session, const char *text, json_t **page);
/* Returns a copy of `before`, the report up to its data, whose Content-Security-Policy also allows the style and the
 * scripts of the live page: a page in a frame inherits the policy. The caller must free it. */
char *report_live_allow(const unsigned char *before);

#endif

/* report_pair.h - the attention of an encoder-decoder on a source and its target: the self-attention of the encoder and
 * of the decoder, and the cross-attention. */
#ifndef CLI_REPORT_REPORT_PAIR_H
#define CLI_REPORT_REPORT_PAIR_H

#include "report/report_page.h"

/* Opens -m, which must be an encoder-decoder, runs it on the pair, and adds one entry per kind of attention to the
 * report. With `gates`, also measures the effects of the heads of encoder and decoder. *said gets the --json object:
 * {model, source, target, encoder, decoder, cross}. Returns an exit code. */
int report_pair_measure(cli_session *session, const char *source, const char *target, bool gates, report *report,
                        json_t **said);

#endif

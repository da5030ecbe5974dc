/* live_page.h - the page of `mha live`: a model, the library as a WebAssembly module, and a text. */
#ifndef CLI_LIVE_LIVE_PAGE_H
#define CLI_LIVE_LIVE_PAGE_H

#include "command.h"
#include <jansson.h>

/* The parts of the page before and after its data, generated at build time from cli/live/page
 * (cmake/embed_page.cmake). */
extern const unsigned char live_page_before[], live_page_after[]; /* both terminated by NUL */

/* A page with more bytes of model files would be slow to open; the folder can be dropped onto a page instead. */
enum { LIVE_BYTES_MAX = 128 << 20 };

/* Reads the files of the model folder: {config, tokenizer, weights: [{name, data}]}, compressed. Returns an exit
 * code. */
int live_model_files(const cli_session *session, json_t **files);
/* Reads the compressed module, which is installed with the built-in model, as a string in base64. Returns an exit
 * code. */
int live_module(const cli_session *session, json_t **module);

/* Opens the model, so that one that the page would refuse is refused here, and checks that the page can show it.
 * Returns an exit code. */
int live_check_model(cli_session *session);
/* Returns the part of a state after its last "#", as the page reads it: an address, or only its fragment. */
const char *live_state_fragment(const char *state);
/* Rejects a state that is not the fragment of an address with a text in UTF-8. The page checks the parts that depend on
 * the model. Returns an exit code. */
int live_state_check(const cli_session *session, const char *state);

/* Builds the data of the page, which page_data_write takes. Returns an exit code. */
int live_page_data(const cli_session *session, const char *text, json_t **data);

#endif

/* lens_page.h - writes a self-contained HTML page of maps (circuit_map.h), or a figure of them. */
#ifndef CLI_LENS_LENS_PAGE_H
#define CLI_LENS_LENS_PAGE_H

#include "lens/circuit_map.h"

/* The parts of the page before and after its data, generated at build time from cli/lens/page
 * (cmake/embed_page.cmake). */
extern const unsigned char lens_page_before[], lens_page_after[]; /* both terminated by NUL */

/* Writes the page of -o: a title, lines of text, and maps; a figure if the name ends in .png, .svg or .pdf. `lines` and
 * `maps` are stolen. Returns an exit code. */
int lens_page_write(const cli_session *session, const char *title, json_t *lines, json_t *maps);

#endif

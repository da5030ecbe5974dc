/* page_file.h - writes an HTML page with its data to the file of -o. */
#ifndef CLI_PAGE_PAGE_FILE_H
#define CLI_PAGE_PAGE_FILE_H

#include "command.h"
#include <jansson.h>

/* Checks -o of a command that writes a page there and its results to stdout: a page on stdout excludes --json and
 * --csv. Returns an exit code. */
int page_file_check(const cli_session *session);

/* Writes `before`, the JSON of `data` and `after`, and reports the size of the page. `before` and `after` are the parts
 * of a page around its data (cmake/embed_page.cmake), terminated by NUL; the reference to `data` is stolen. Returns an
 * exit code. */
int page_file_save(const cli_session *session, const unsigned char *before, json_t *data, const unsigned char *after);

#endif

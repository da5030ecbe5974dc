/* circuits_page.h - the page of patching and knockout. */
#ifndef CLI_CIRCUITS_CIRCUITS_PAGE_H
#define CLI_CIRCUITS_CIRCUITS_PAGE_H

#include "circuits/prompt_report.h"

/* The parts of the page before and after its data, generated at build time from cli/circuits/page
 * (cmake/embed_page.cmake). Both are terminated by NUL. */
extern const unsigned char circuits_page_before[], circuits_page_after[];

/* Writes the page of a report to the file of -o; takes ownership of `results`. Returns an exit code. */
int circuits_page_save(const cli_session *session, const prompt_report *report, json_t *results);

#endif

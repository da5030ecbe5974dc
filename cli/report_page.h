/* report_page.h - the self-contained HTML page: all heads of a model, or of two beside each other, on one text. */
#ifndef CLI_REPORT_PAGE_H
#define CLI_REPORT_PAGE_H

#include <jansson.h>

#include "command.h"

/* The page around its data, made at build time from cli/report/ (cmake/embed_page.cmake). */
extern const unsigned char report_page_before[], report_page_after[]; /* terminated */

typedef struct report_model {
    const char *name; /* shown in the page, as text */
    const mha_model *model;
    const mha_heads *heads;                 /* measured with keep_maps */
    json_t *importance, *diversity, *curve; /* NULL = not measured: the page says so */
} report_model;

typedef struct report {
    const char *text;       /* shown in the page, as text */
    report_model models[2]; /* of them `count`, 1 or 2 */
    int count;
} report;

/* Writes the page to the file of -o, and says so. Returns an exit code. */
int report_page_save(cli_session *session, const report *r);

#endif

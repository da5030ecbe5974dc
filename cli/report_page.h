/* report_page.h - the self-contained HTML page: all heads of a model on one text. */
#ifndef CLI_REPORT_PAGE_H
#define CLI_REPORT_PAGE_H

#include <stdio.h>

#include "mha/mha.h"

/* The page around its data, made at build time from cli/report/ (cmake/embed_page.cmake). */
extern const unsigned char report_page_before[], report_page_after[]; /* terminated */

typedef struct report {
    const char *model_name, *text; /* shown in the page, as text */
    const mha_model *model;
    const mha_heads *heads; /* measured with keep_maps */
} report;

/* Writes the page to `out`. Returns 0 when memory is short (the page is then not whole). The maps are stored as exact
 * floats up to REPORT_EXACT_BYTES, else as the square root in 8 bits: largest error 0.004, and the page says so. */
enum { REPORT_EXACT_BYTES = 8 << 20 };
int report_page_write(const report *r, FILE *out);

#endif

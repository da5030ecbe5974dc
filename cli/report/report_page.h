/* report_page.h - the self-contained HTML page: all heads of a model, or of two beside each other, on one text or on
 * several, of which one is shown at a time. */
#ifndef CLI_REPORT_REPORT_PAGE_H
#define CLI_REPORT_REPORT_PAGE_H

#include <jansson.h>

#include "command.h"

/* The page around its data, made at build time from cli/report/ (cmake/embed_page.cmake). */
extern const unsigned char report_page_before[], report_page_after[]; /* terminated */

/* A model on one text. */
typedef struct report_model {
    const char *name; /* shown in the page, as text */
    const mha_model *model;
    const mha_heads *heads; /* measured with keep_maps */
} report_model;

/* The data of a page as it grows. Several texts share REPORT_EXACT_BYTES of exact weights and are limited to
 * REPORT_MOST_WEIGHTS, about 30 MB of page. */
enum { REPORT_EXACT_BYTES = 2 << 20, REPORT_MOST_WEIGHTS = 64 << 20 };
typedef struct report {
    int64_t planned; /* texts that will be added */
    json_t *texts;
    json_t *measured; /* for each model {importance, diversity, curve}; what was not measured is left out */
    json_t *demo;     /* NULL, or {continuations: [{prompt, text}], ablation: [{words, heads, chance}]} */
    size_t weights;   /* of all maps so far */
} report;

/* Adds the maps of all heads on a text, of `count` models. False when memory is short. */
bool report_add(report *r, const char *text, const report_model models[], int count);
/* What was measured of the next model, once; NULL = not measured. References are not taken over. */
bool report_measured(report *r, json_t *importance, json_t *diversity, json_t *curve);

/* Writes the page to the file of -o, and says so. Returns an exit code. */
int report_page_save(cli_session *session, const report *r);
void report_free(report *r);

#endif

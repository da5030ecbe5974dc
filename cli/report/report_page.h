/* report_page.h - writes the self-contained HTML page of all heads of one or two models, on one or several texts. */
#ifndef CLI_REPORT_REPORT_PAGE_H
#define CLI_REPORT_REPORT_PAGE_H

#include "command.h"
#include <jansson.h>

/* The parts of the page before and after its data, generated at build time from cli/report/
 * (cmake/embed_page.cmake). */
extern const unsigned char report_page_before[], report_page_after[]; /* both terminated by NUL */

/* A model and its heads, measured on one text. */
typedef struct report_model {
    const char *name; /* name displayed on the page, escaped */
    const mha_model *model;
    const mha_heads *heads; /* measured with keep_maps */
} report_model;

/* The data of a page under construction. Weights are stored exactly if they need at most REPORT_EXACT_BYTES. The maps
 * of several texts must have at most REPORT_WEIGHTS_MAX weights in total, which gives a page of about 30 MB. */
enum { REPORT_EXACT_BYTES = 2 << 20, REPORT_WEIGHTS_MAX = 64 << 20 };
typedef struct report {
    int64_t planned; /* number of texts that will be added */
    json_t *texts;
    json_t *measured; /* per model {importance, diversity, curve}, without keys that were not measured */
    json_t *live;     /* NULL, or the page of `mha live` as a string (report_live.h) */
    json_t *demo;     /* NULL, or {continuations: [{prompt, text}], ablation: [{words, heads, chance}]} */
    size_t weights;   /* weights of all maps added so far */
} report;

/* Adds the maps of all heads of `count` models on a text. Returns false if memory is exhausted. */
bool report_add(report *r, const char *text, const report_model models[], int count);
/* Adds a text with its models as the page reads them: {model, causal, cut, tokens, heads, metrics, labels, maps}, for
 * an encoder-decoder also kind and importance, and queries if the rows of the maps are other tokens than the columns.
 * Takes ownership of `models`. */
bool report_add_models(report *r, const char *text, json_t *models);
/* Returns the tokens as the page shows them. */
json_t *report_tokens_json(const mha_model *model, const int32_t *ids, int64_t count);
/* Adds the measurements of the next model; NULL = not measured. Does not take ownership of the references. Returns
 * false if memory is exhausted. */
bool report_measured(report *r, json_t *importance, json_t *diversity, json_t *curve);

/* Writes the page to the file of -o and logs its size. Returns an exit code. */
int report_page_save(cli_session *session, const report *r);
void report_free(report *r);

#endif

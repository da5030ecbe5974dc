/* demo_copy.h - measures how well a decoder copies, with all heads and with some heads ablated. */
#ifndef CLI_RUN_DEMO_COPY_H
#define CLI_RUN_DEMO_COPY_H

#include "command.h"
#include <jansson.h>

/* A text that ends with a second copy of some of its words. */
typedef struct demo_copy {
    const mha_model *model;
    const mha_heads *heads; /* heads measured on the text, with maps */
    int64_t again;          /* first token of the second copy */
} demo_copy;

/* A row of the table: the result for all heads, or with some heads ablated. */
typedef struct demo_row {
    char words[160], names[160]; /* description and ablated heads: "without the induction heads", " 1.0 1.3 ..." */
    json_t *heads;               /* names of all ablated heads */
    double chance;               /* mean probability of the correct token in the second copy */
} demo_row;

/* The rows ablate no heads; the induction heads; the previous-token heads; the other heads in layers with induction
 * heads. A row is omitted if the model has no such heads. */
enum { DEMO_ROWS = 4 };
typedef struct demo_table {
    demo_row row[DEMO_ROWS];
    int count;
} demo_table;

/* Measures all rows. Returns an exit code; call demo_table_free even after an error. */
int demo_copy_measure(const cli_session *session, const demo_copy *copy, demo_table *table);
void demo_table_put(const cli_session *session, const demo_table *table, int indent);
/* Returns the rows as [{words, heads, chance}]. */
json_t *demo_table_json(const demo_table *table);
void demo_table_free(demo_table *table);

#endif

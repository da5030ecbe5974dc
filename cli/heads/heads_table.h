/* heads_table.h - prints the measured heads of a model as a table and as CSV. */
#ifndef CLI_HEADS_HEADS_TABLE_H
#define CLI_HEADS_HEADS_TABLE_H

#include "heads/head_roles.h"
#include "session.h"

/* The measurements of one model. */
typedef struct measured_heads {
    const mha_model *model;
    mha_heads *heads;
    mha_importance *importance; /* importance of the heads; NULL without --by */
    mha_diversity *diversity;   /* NULL without --diversity */
    head_roles *roles;          /* NULL without --roles */
    mha_importance_score by;
    int64_t texts;
} measured_heads;

/* Prints a row "layer.head  label  metrics" for every head, in the order of layers, or the most important head first if
 * importance was measured. Returns an exit code. */
int heads_table_print(const cli_session *s, const measured_heads *m);
/* Prints a line per head with all metrics; an undefined value is an empty cell. */
void heads_table_csv(FILE *out, const measured_heads *m);

#endif

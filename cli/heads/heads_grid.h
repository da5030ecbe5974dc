/* heads_grid.h - all heads of a model in one picture of letters: a row per layer, a cell per head. */
#ifndef CLI_HEADS_HEADS_GRID_H
#define CLI_HEADS_HEADS_GRID_H

#include "command.h"

/* The score that a label rests on; MHA_HEAD_METRICS for "mixed", which rests on none. */
mha_head_metric cli_label_metric(mha_head_label label);

/* The grid by original head numbers, the place of a removed head being empty: in each cell the label's code and its
 * score in percent (left out where the terminal is narrow). Lines are wrapped to the terminal. */
void cli_put_grid(const cli_session *session, const mha_model *model, const mha_heads *heads, int indent);
/* The same with each head's importance in percent of the largest as colour and number, and a line that says so. */
void cli_put_importance_grid(const cli_session *session, const mha_model *model, const mha_heads *heads,
                             const mha_importance *importance, int indent);
/* What the codes mean, with how many heads have each label; labels that no head has are left out. */
void cli_put_legend(const cli_session *session, const mha_heads *heads, int indent);

#endif

/* heads_grid.h - prints all heads as a text grid: a row per layer, a cell per head. */
#ifndef CLI_HEADS_HEADS_GRID_H
#define CLI_HEADS_HEADS_GRID_H

#include "command.h"
#include "page/color_scale.h"

/* Returns the metric that decides a label; MHA_HEAD_METRICS for "mixed", which has no metric. */
mha_head_metric cli_label_metric(mha_head_label label);

/* Prints the grid with one column per original head number; the cell of a removed head is empty. A cell contains the
 * code of the label and its score in percent (omitted on narrow terminals). Lines are wrapped to the terminal. */
void cli_put_grid(const cli_session *session, const mha_model *model, const mha_heads *heads, int indent);
/* Prints the same grid with each head's importance in percent of the largest, as color on the scale `colors` and as a
 * number, and a legend. */
void cli_put_importance_grid(const cli_session *session, const mha_model *model, const mha_heads *heads,
                             const mha_importance *importance, color_scale colors, int indent);
/* Prints the meaning of each code and the number of heads with that label; unused labels are omitted. */
void cli_put_legend(const cli_session *session, const mha_heads *heads, int indent);

#endif

/* task_rows.h - maps a task to its sequence, head and rows. */
#ifndef MHA_ATTN_FORWARD_TASK_ROWS_H
#define MHA_ATTN_FORWARD_TASK_ROWS_H

#include "attn/mask/mask.h"

/* Fills b, h, result, first, count and position for task `task` of [0, plan->tasks). A count of 0 or less means no
 * work. Returns the call to use: `call`, or with packed sequences `own`, a copy restricted to the task's sequence. */
const mha__call *mha__place(const mha__call *call, int64_t task, mha__rows *rows, mha__call *own);

/* Returns the call with its packed views restricted to sequence b. Views with one entry per sequence stay as they are.
 */
mha__call mha__place_alone(const mha__call *call, int64_t b);

#endif

/* task_rows.h - which rows of which sequence and head a task is. */
#ifndef MHA_ATTN_FORWARD_TASK_ROWS_H
#define MHA_ATTN_FORWARD_TASK_ROWS_H

#include "attn/mask/mask.h"

/* Fills b, h, result, first, count and position of task `task` of [0, plan->tasks). A count of 0 or less: nothing to
 * do. Returns the call to work on: `call`, or with packed sequences `own`, a copy that holds nothing but the task's
 * sequence. */
const mha__call *mha__place(const mha__call *call, int64_t task, mha__rows *rows, mha__call *own);

/* A call of which packed sequence b is all that the packed views hold. Views with an entry for each sequence stay. */
mha__call mha__place_alone(const mha__call *call, int64_t b);

#endif

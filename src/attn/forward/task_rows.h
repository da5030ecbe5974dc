/* task_rows.h - maps a task to its sequence, head and rows. */
#ifndef MHA_ATTN_FORWARD_TASK_ROWS_H
#define MHA_ATTN_FORWARD_TASK_ROWS_H

#include "attn/mask/mask.h"

/* Sets b, h, result, first, count and position for task `task` of [0, plan->tasks). If count is 0 or less, the task has
 * no work. Returns the call to use: `call`, or if sequences are packed `own`, a copy restricted to the task's
 * sequence. */
const mha__call *mha__task_rows(const mha__call *call, int64_t task, mha__rows *rows, mha__call *own);

/* Returns the call with its packed views restricted to sequence b. Views with one entry per sequence are unchanged.
 */
mha__call mha__sequence_call(const mha__call *call, int64_t b);

#endif

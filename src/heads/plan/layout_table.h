/* layout_table.h - declarations shared by the files of head planning. */
#ifndef MHA_HEADS_PLAN_LAYOUT_TABLE_H
#define MHA_HEADS_PLAN_LAYOUT_TABLE_H

#include "mha/head_layouts.h"

/* The minimum number of parameters of a medium model, and the number above which a model is large. */
#define MHA__HEAD_LAYOUT_MEDIUM INT64_C(100000000)
#define MHA__HEAD_LAYOUT_LARGE INT64_C(10000000000)

/* Computes the row of one variant; `model` must be resolved. */
mha_status mha__head_layout_row(const mha_head_layout_options *model, mha_head_layout_variant variant,
                                mha_head_layout *row, mha_error *err);

#endif

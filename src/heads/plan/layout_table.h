/* layout_table.h - what the parts of head planning share. */
#ifndef MHA_HEADS_PLAN_LAYOUT_TABLE_H
#define MHA_HEADS_PLAN_LAYOUT_TABLE_H

#include "mha/head_layouts.h"

/* From these many parameters on a model is medium; above the other it is large. */
#define MHA__PLAN_MEDIUM INT64_C(100000000)
#define MHA__PLAN_LARGE INT64_C(10000000000)

/* The row of one variant of a resolved model. */
mha_status mha__plan_row(const mha_plan_options *model, mha_plan_variant variant, mha_plan_row *row, mha_error *err);

#endif

/* map_lists.h - the shape of the maps (probs and scores), and the lists of heads and rows that restrict them. */
#ifndef MHA_ATTN_PLAN_MAP_LISTS_H
#define MHA_ATTN_PLAN_MAP_LISTS_H

#include "attn/plan/plan.h"

/* Sets the shape of probs and scores. */
void mha__maps_shape(const mha_attn_desc *resolved, int64_t shape[4]);

/* Checks the entries of map_heads and map_rows. */
mha_status mha__maps_check(const mha__call *call, mha_error *err);

/* Returns entry n of map_rows for batch b. */
static inline int64_t mha__map_row(const mha__call *call, int64_t b, int64_t n)
{
    return *(const int64_t *)mha__at(&call->args.map_rows, sizeof(int64_t), b, n, 0, 0);
}

#endif

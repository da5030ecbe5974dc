/* cpu_engine.h - what the files of the CPU engine share. */
#ifndef MHA_ATTN_ENGINE_CPU_ENGINE_H
#define MHA_ATTN_ENGINE_CPU_ENGINE_H

#include "attn/engine/engine.h"

/* Returns why the heads of a group are not the rows of one tile; NULL if they are. */
const char *mha__plan_unfolded(const mha_attn_plan *plan);

/* cpu_describe.c */
size_t mha__cpu_describe(const mha_attn_plan *plan, int json, char *to, size_t capacity);

#endif

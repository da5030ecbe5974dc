/* cpu_engine.h - declarations shared by the files of the CPU engine. */
#ifndef MHA_ATTN_ENGINE_CPU_ENGINE_H
#define MHA_ATTN_ENGINE_CPU_ENGINE_H

#include "attn/engine/engine.h"

/* implements mha_attn_plan_describe (cpu_describe.c) */
size_t mha__cpu_describe(const mha_attn_plan *plan, int json, char *to, size_t capacity);

#endif

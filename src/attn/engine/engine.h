/* engine.h - the interface that a device implements.
 *
 * The host side (folder plan) checks descriptions and arguments and is the same for every engine. It dereferences only
 * the integer inputs of a call (lengths, offsets, lists, tables), which are always in host memory. It never reads data
 * (q, k, v, masks, biases, outputs), so an engine may keep data in the memory of its device. */
#ifndef MHA_ATTN_ENGINE_ENGINE_H
#define MHA_ATTN_ENGINE_ENGINE_H

#include "attn/plan/plan.h"

typedef struct mha__attn_engine {
    /* Completes a plan whose ctx, engine and desc are set: divides the work and selects kernels. */
    mha_status (*plan)(mha_attn_plan *plan, mha_error *err);
    /* Returns the workspace size of a call in bytes. */
    size_t (*workspace)(const mha_attn_plan *plan);
    /* Runs a call whose arguments have been checked. Returns MHA_ERR_CANCELED if the context's callback stops the
     * call. */
    mha_status (*forward)(mha__call *call, mha_error *err);
    mha_status (*backward)(mha__bwd_call *call, mha_error *err);
    /* Implements mha_attn_plan_describe. */
    size_t (*describe)(const mha_attn_plan *plan, int json, char *to, size_t capacity);
} mha__attn_engine;

extern const mha__attn_engine mha__cpu_engine;

#endif

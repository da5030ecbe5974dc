/* engine.h - what a device implements behind a plan.
 *
 * The host side (room plan) checks descriptions and arguments; it is the same for every engine. It dereferences only
 * the integer inputs of a call: lengths, offsets, lists and tables, which always lie in host memory. Binding never
 * reads data (q, k, v, masks, biases, outputs), so another engine may keep data in the memory of its device.
 */
#ifndef MHA_ATTN_ENGINE_ENGINE_H
#define MHA_ATTN_ENGINE_ENGINE_H

#include "attn/plan/plan.h"

typedef struct mha__attn_engine {
    /* Completes a plan whose ctx, engine and desc are set: divides the work and chooses kernels. */
    mha_status (*plan)(mha_attn_plan *plan, mha_error *err);
    /* Bytes of the workspace of a call. */
    size_t (*workspace)(const mha_attn_plan *plan);
    /* Runs a bound call. MHA_ERR_CANCELLED if the context's callback stops it. */
    mha_status (*forward)(mha__call *call, mha_error *err);
    mha_status (*backward)(mha__bwd_call *call, mha_error *err);
    /* As mha_attn_plan_describe. */
    size_t (*describe)(const mha_attn_plan *plan, int json, char *to, size_t capacity);
} mha__attn_engine;

extern const mha__attn_engine mha__cpu_engine;

#endif

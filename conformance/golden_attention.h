/* golden_attention.h - declares a golden case of the attention operator, which the forward and backward checks
 * share. */
#ifndef CONFORMANCE_GOLDEN_ATTENTION_H
#define CONFORMANCE_GOLDEN_ATTENTION_H

#include "conformance/golden_folder.h"
#include "mha/attn_grads.h"

/* A case: description, operands and results. */
typedef struct attention_case {
    verify_entry entry;
    mha_file *file;
    verify_memory memory;
    int64_t B, H, Hkv, Lq, Lk, D, Dv;
    mha_attn_desc desc;
    mha_attn_args args;
    bool packed;
    void *out; /* output in desc.dtype */
    float *lse, *probs;
    mha_attn_grads grads; /* set if the case records gradients */
    int roundings;        /* number of times that a 16-bit result is rounded */
} attention_case;

/* Returns true if the case records this result. */
bool verify_records(const verify_entry *e, const char *output);

/* Return q, k, v, out or a gradient: [B, heads, L, width], or [L, heads, width] for packed sequences. `stride` receives
   zeros for a contiguous tensor; for packed sequences, it receives the strides as [1, heads, L, width].
 */
const mha_tensor *verify_operand(attention_case *c, const char *name, int64_t heads, int64_t length, int64_t width,
                                 int64_t stride[4]);
mha_cview verify_typed(attention_case *c, const char *name, int64_t heads, int64_t length, int64_t width);

/* Compare results in the dtype of the case, or in float, with a recorded tensor. */
void verify_typed_result(attention_case *c, verify_case *outcome, const char *name, const void *got);
void verify_float_result(attention_case *c, verify_case *outcome, const char *name, const float *got);

/* ---- golden_gradients.c ---- */

/* If the case records gradients, requests the inputs of the backward pass. */
void verify_describe_gradients(attention_case *c);
mha_status verify_bind_gradients(attention_case *c);
void verify_compare_gradients(attention_case *c, const mha_attn_plan *plan, verify_case *outcome);

#endif

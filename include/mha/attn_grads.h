/* attn_grads.h - the backward pass of the attention operator.
 *
 *     desc.outputs = MHA_ATTN_LSE | MHA_ATTN_GRADS;                      the plan supports both passes
 *     mha_attn_forward(plan, &args, workspace, bytes, &err);             writes out and lse, which backward reads
 *     mha_attn_grads grads = { .size = sizeof grads, .dout.data = dout, .out.data = out, .lse.data = lse,
 *                              .dq.data = dq, .dk.data = dk, .dv.data = dv };
 *     mha_attn_backward(plan, &args, &grads, workspace, bytes, &err);    same args; their outputs are not read
 *
 * P and W are the probabilities before and after dropout, g is the gate, and D = rowsum(dO * O) - dlse:
 *
 *     dV = g W^T dO        dS = P * (g keep / (1 - dropout) * (dO V^T) - D)        dbias = dS
 *     dQ = scale dS' K     dK = scale dS'^T Q     dS' = dS * (1 - (s / softcap)^2)
 *     dslope = - sum of |i + offset - j| dS       dsink = - sum of exp(sink - lse) D       dgate = sum of W * (dO V^T)
 *
 * P is recomputed from q, k and lse, block by block; no array of size L x L is stored, except a dbias of that size.
 *
 * Guarantees, in addition to those of attn.h:
 *   - For a given ISA and build, results are bitwise identical for any thread count, batch size and position in the
 *     batch, packed or alone. Sums over query rows run in ascending order; for a key/value head with 1,024 or more
 *     query rows, they are computed in up to four parts.
 *   - Masked pairs have no effect in either direction. Garbage in k or v does not affect gradients of rows that may not
 *     attend to it. Garbage in q, dout or out of a row does not affect gradients of keys that the row may not attend
 *     to. Rows that attend to no key, and keys that no row attends to, get zeros. NaN and Inf propagate to the
 *     gradients of the rows and keys that attend to each other.
 *   - The rounding of a large lse (scores near 1e4, or a bias of -FLT_MAX) does not affect P: if the magnitude of lse
 *     is above 32 and its precision is too low, the row sum is recomputed.
 *   - 16-bit operands are read exactly, arithmetic is in f32, and every gradient is rounded once. With bf16 products
 *     (mha_attn_plan_describe: "products"), P and dS are also rounded to bf16 for dq, dk and dv; all other gradients
 *     use the values before this rounding.
 *
 * After: Dao et al. 2022, appendix B (recomputation from lse).
 */
#ifndef MHA_ATTN_GRADS_H
#define MHA_ATTN_GRADS_H

#include "mha/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Strides as in mha_attn_args. With packed sequences and head lists, the shapes change like those of q, k, v, out and
 * lse; heads that are not listed get zeros, and heads that are listed twice get the sum. A gradient whose data is NULL
 * is not computed.
 *
 * With pages, dk and dv have pages like k and v. A row of a page gets the sum over all sequences whose block table
 * refers to the page; rows that no sequence contains get zeros. Gradients of a page of one sequence are bitwise
 * identical to those of dense keys. The workspace then contains copies of k and v, and the sums of all keys. With a
 * rotary embedding, dq and dk are gradients with respect to q and k before the rotation.
 *
 * dbias, dslopes, dsinks and dgates: a stride of 0 sums over that axis, so the strides of a broadcast input give its
 * gradient; four zero strides sum over everything. A dbias by distance, with stride[2] == -stride[3], sums over all
 * pairs of the same distance j - i (see Bias in mha/attn.h), in O(Lq + Lk) memory. Sums are accumulated in double.
 * Computing dbias adds two matrix products to the five of the pass. */
typedef struct mha_attn_grads {
    size_t size;         /* sizeof(mha_attn_grads) */
    mha_cview dout;      /* [B, H,   Lq, Dv] of desc.dtype: gradient of the loss with respect to out */
    mha_cview out;       /* [B, H,   Lq, Dv] of desc.dtype: as written by mha_attn_forward */
    mha_cview lse;       /* [B, H,   Lq] (stride[3] unused) f32 (f64 if dtype is f64): as written by mha_attn_forward */
    mha_cview dlse;      /* [B, H,   Lq] like lse: gradient of the loss with respect to lse; data NULL: zeros. Not read
                       * where lse is -infinity, and for rows beyond q_lens, which contribute to no gradient */
    mha_view dq;         /* [B, H,   Lq, D ] of desc.dtype */
    mha_view dk;         /* [B, Hkv, Lk, D ] of desc.kv_dtype   with block_table [pages, Hkv, page_size, D ] */
    mha_view dv;         /* [B, Hkv, Lk, Dv] of desc.kv_dtype   with block_table [pages, Hkv, page_size, Dv] */
    mha_view dbias;      /* [B, H, Lq, Lk], or packed [B, H, max_q_len, max_kv_len], f32 (f64 if dtype is f64) */
    mha_view dslopes;    /* [B, H] f32 (f64 if dtype is f64); a zero stride sums over that axis */
    mha_view dsinks;     /* [B, H] like dslopes */
    mha_view dgates;     /* [B, H] like dslopes */
    mha_view row_taylor; /* [B, H, Lq] (stride[3] unused) f32 (f64 if dtype is f64); the estimate described below */
} mha_attn_grads;

/* row_taylor is not a gradient. It is a first-order estimate of how much the loss changes if single attention weights
 * of a row are set to 0:
 *
 *     row_taylor[i] = sum over keys j attended by row i of |p_ij dL/dp_ij|     dL/dp = g keep / (1 - dropout) dO V^T
 *
 * where p is the probability before dropout; dL/dp is 0 for the entries that dropout sets to 0. Each p is treated as an
 * independent variable that affects the loss through out only (dlse is not read). Without the absolute value, the sum
 * is the row's contribution to g dgate. Shapes follow lse (lists of heads, packed sequences). Cost: one additional
 * exponential per query-key pair; no memory that grows with L. After: Michel et al. 2019, Molchanov et al. 2017 (weight
 * times gradient as importance). */

/* Runs the backward pass of a plan created with MHA_ATTN_GRADS. `workspace` has the size and alignment that
 * mha_attn_forward requires (mha_attn_plan_workspace). Like the forward pass, the backward pass does not allocate, log
 * or lock. Every requested gradient is written completely, including zeros. Errors: MHA_ERR_ARG for a plan without
 * MHA_ATTN_GRADS, a NULL or misaligned operand, a gradient of an input whose flag is not set in the description, a
 * gradient that overlaps another operand, or a workspace that is too small. On error nothing is written. Cost: about
 * 2 B H Lq Lk (3 D + 2 Dv) operations. For the backward pass, mha_attn_plan_workspace includes, per thread, one row of
 * dk and dv for each key of a head; if rows are divided into parts, four times this size per head. */
MHA_API mha_status mha_attn_backward(const mha_attn_plan *plan, const mha_attn_args *args, const mha_attn_grads *grads,
                                     void *workspace, size_t workspace_bytes, mha_error *err);

/* Runs the backward pass of mha_attention: creates a plan with MHA_ATTN_GRADS, allocates the workspace, runs the pass
 * and frees both. */
MHA_API mha_status mha_attention_backward(mha_ctx *ctx, const mha_attn_desc *desc, const mha_attn_args *args,
                                          const mha_attn_grads *grads, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif

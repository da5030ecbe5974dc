/* rotary.h - the rotary embedding of a call: checks args.rope, and rotates rows of q and k. */
#ifndef MHA_ATTN_PLAN_ROTARY_H
#define MHA_ATTN_PLAN_ROTARY_H

#include "attn/plan/operand.h"
#include "attn/plan/plan.h"

/* Checks `from` for rows of `width` elements, and copies it with all defaults set to *rope. `size`: bytes per element
 * of cos and sin. */
mha_status mha__rope_resolve(const mha_attn_rope *from, int64_t width, size_t size, mha_attn_rope *rope,
                             mha_error *err);
/* Fails for position `at` of row i of sequence b, which is not below rope->positions. `name` is the operand that may
 * give positions, `given` whether it does, and `what` the name of a row. */
mha_status mha__rope_position_error(const mha_attn_rope *rope, const char *name, bool given, const char *what,
                                    int64_t i, int64_t b, int64_t at, mha_error *err);
/* Checks args.rope, and sets it to call->rope, a copy with all strides set. */
mha_status mha__rope_bind(mha__call *call, mha_error *err);
/* Checks the positions of all rows and keys. The lengths must have been checked. */
mha_status mha__rope_check(const mha__call *call, mha_error *err);

/* Return the position of row i or key j of sequence b. */
int64_t mha__rope_of_row(const mha__call *call, int64_t b, int64_t i);
int64_t mha__rope_of_key(const mha__call *call, int64_t b, int64_t j);

/* Rotates `pairs` pairs of x in place: (x, y) becomes (x cos - y sin, y cos + x sin), or with `back` (x cos + y sin, y
 * cos - x sin). Pair i is (i, i + pairs), or (2 i, 2 i + 1) if `interleaved`. Multiply-adds are not fused, so results
 * are bitwise identical on every CPU. */
void mha__rotate_f32(int64_t pairs, bool interleaved, const float *cos, const float *sin, bool back, float *x);
void mha__rotate_f64(int64_t pairs, bool interleaved, const double *cos, const double *sin, bool back, double *x);

/* Rotates one row of reals in place, from the position or, if `back` is set, back to it. `size`: bytes per real. */
void mha__rope_turn_row(const mha_attn_rope *rope, int64_t position, bool back, size_t size, void *x);

/* Copies row `from` of `width` elements, `col` apart, to contiguous elements of the same storage type, and rotates the
 * copy. The copy may be the row itself if its elements are contiguous. */
void mha__rope_copy_row(const mha__call *call, const mha__stored *as, int64_t width, int64_t position, const void *from,
                        int64_t col, void *to);

/* Copies rows [first, first + rows) of the grid of head h of q to contiguous rows of `to`, and rotates existing rows.
 * In a plan that does not rotate q, only copies them. */
void mha__copy_queries(const mha__call *call, int64_t b, int64_t h, int64_t first, int64_t rows, void *to);

#endif

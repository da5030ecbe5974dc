/* rotated.h - adds a rotary embedding to a problem, and rotates the operands of an equal problem without it. */
#ifndef TEST_ROTATED_H
#define TEST_ROTATED_H

#include "support/attn/problem.h"

typedef struct rotated {
    mha_attn_rope rope;
    double *f64[2]; /* cos and sin */
    float *f32[2];
    int64_t *rows, *keys; /* explicit positions, or NULL */
    int64_t row_stride, key_stride;
} rotated;

/* Adds MHA_ATTN_ROPE_Q, MHA_ATTN_ROPE_K or both with random properties to a problem that is not paged yet. problem_bind
 * clears args.rope, so it must be set to &r->rope again. Free with rotated_free. */
void rotated_make(rotated *r, problem *p, uint64_t seed, uint64_t number);
void rotated_free(rotated *r);

/* Rotates one row of `width` elements of the type of a problem, forward or back, with mha_rope_turn, or in double. */
void rotated_turn(const rotated *r, const problem *p, int64_t width, int64_t position, bool back, double *row);
/* Return the position of a row or of a key. */
int64_t rotated_row(const rotated *r, const problem *p, int64_t b, int64_t i);
int64_t rotated_key(const rotated *r, int64_t b, int64_t j);

/* Replaces q and k of `twin`, a copy of `p` without a rotary embedding, with the rotated rows. */
void rotated_twin(const rotated *r, const problem *p, problem *twin);

#endif

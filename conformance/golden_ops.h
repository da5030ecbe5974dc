/* golden_ops.h - golden results of single operations, golden/ops: what the kinds share. A kind is a row of the table in
 * golden_ops.c and a function that checks one case. golden_ops_case.c has the functions that read and compare. */
#ifndef CONFORMANCE_GOLDEN_OPS_H
#define CONFORMANCE_GOLDEN_OPS_H

#include "conformance/golden_folder.h"

typedef struct ops_case {
    verify_entry entry; /* from index.json; activations have a name only */
    mha_ctx *ctx;
    const mha_file *file;
    verify_memory memory;
    verify_case outcome;
    verify_log *log;
} ops_case;

/* The f32 tensor CASE/NAME of this shape (-1: any dimension, returned in shape[]); NULL on error. */
const float *ops_floats(ops_case *c, const char *name, int rank, int64_t *shape);
/* Tensor CASE/NAME, or NULL if it is not recorded. */
const mha_tensor *ops_find(const ops_case *c, const char *name);
/* Allocates `count` floats; NULL on error. */
float *ops_room(ops_case *c, int64_t count);
/* Compares CASE/NAME, which must have `count` elements, except the last `but`. The limit is 32 roundings of the largest
 * recorded value, or of `size` if intermediate values are larger. */
void ops_compare(ops_case *c, const char *name, const float *got, int64_t count, int64_t but, double size);
/* Reports that CASE/NAME is recorded but this build computes nothing to compare it with. */
void ops_skip(ops_case *c, const char *name);

/* ---- kinds ---- */

void ops_rope(ops_case *c);
void ops_norms(ops_case *c); /* golden_norms.c: this and the next function */
void ops_cross_entropy(ops_case *c);
void ops_activation(ops_case *c);
void ops_torch_mha(ops_case *c); /* golden_mha.c */

#endif

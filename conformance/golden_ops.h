/* golden_ops.h - recorded results of single operations, golden/ops: what its kinds share. A kind is a line of the table
 * in golden_ops.c and a function that checks one case. */
#ifndef CONFORMANCE_GOLDEN_OPS_H
#define CONFORMANCE_GOLDEN_OPS_H

#include "conformance/golden_folder.h"

typedef struct ops_case {
    verify_entry entry; /* of index.json; activations have a name only */
    mha_ctx *ctx;
    const mha_file *file;
    verify_memory memory;
    verify_case outcome;
    verify_log *log;
} ops_case;

/* Tensor CASE/NAME of f32 with this shape (-1: any extent, stored in shape[]); NULL after a fault. */
const float *ops_floats(ops_case *c, const char *name, int rank, int64_t *shape);
/* Tensor CASE/NAME, or NULL if it is not recorded. */
const mha_tensor *ops_find(const ops_case *c, const char *name);
/* Room for `count` floats; NULL after a fault. */
float *ops_room(ops_case *c, int64_t count);
/* Compares all of CASE/NAME, which must have `count` numbers, leaving out the last `but`. The limit: 32 roundings of
 * the largest number of the record, or of `size` if numbers on the way to it are larger. */
void ops_compare(ops_case *c, const char *name, const float *got, int64_t count, int64_t but, double size);
/* Notes that CASE/NAME is recorded, but that this build has nothing to compare with it. */
void ops_skip(ops_case *c, const char *name);

/* ---- kinds ---- */

void ops_rope(ops_case *c);
void ops_norms(ops_case *c); /* golden_norms.c, and the next */
void ops_cross_entropy(ops_case *c);
void ops_activation(ops_case *c);
void ops_torch_mha(ops_case *c); /* golden_mha.c */

#endif

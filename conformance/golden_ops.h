/* golden_ops.h - declares functions that the checks of single operations (golden/ops) share. A kind of operation has a
 * row in the table of golden_ops.c and a function that checks one case. golden_ops_case.c reads tensors and compares
 * results. */
#ifndef CONFORMANCE_GOLDEN_OPS_H
#define CONFORMANCE_GOLDEN_OPS_H

#include "conformance/golden_folder.h"

typedef struct ops_case {
    verify_entry entry; /* entry in index.json; for activations, only the name is set */
    mha_ctx *ctx;
    const mha_file *file;
    verify_memory memory;
    verify_case outcome;
    verify_log *log;
} ops_case;

/* Returns the f32 tensor CASE/NAME of this shape (-1: any dimension, returned in shape[]); NULL on error. */
const float *ops_floats(ops_case *c, const char *name, int rank, int64_t *shape);
/* Returns the tensor CASE/NAME; NULL if it is not recorded. */
const mha_tensor *ops_find(const ops_case *c, const char *name);
/* Allocates `count` floats; NULL on error. */
float *ops_room(ops_case *c, int64_t count);
/* Compares the tensor CASE/NAME without its last `but` elements. The tensor must have `count` elements. The tolerance
 * is 32 rounding errors of the largest recorded value, or of `size` if it is larger. */
void ops_compare(ops_case *c, const char *name, const float *got, int64_t count, int64_t but, double size);
/* Reports that CASE/NAME is recorded, but has no counterpart in this build. */
void ops_skip(ops_case *c, const char *name);

/* ---- kinds of operations; each function checks one case ---- */

void ops_rope(ops_case *c);
void ops_norms(ops_case *c); /* ops_norms and ops_cross_entropy are defined in golden_norms.c */
void ops_cross_entropy(ops_case *c);
void ops_activation(ops_case *c);
void ops_torch_mha(ops_case *c); /* defined in golden_mha.c */

#endif

/* golden_seeds.h - what the golden walk-throughs share: the tensors of a case, stored or sampled again from its seed.
 */
#ifndef CONFORMANCE_WALKTHROUGHS_GOLDEN_SEEDS_H
#define CONFORMANCE_WALKTHROUGHS_GOLDEN_SEEDS_H

#include "conformance/golden_folder.h"

enum { SEED_DRAWS = 600 };

/* One case, run in one of two ways. Stored: everything comes from the file. From the seed: tensors that the index lists
 * as sampled are sampled again, must be bitwise identical to the file, and are used. */
typedef struct seed_case {
    verify_entry entry, config;
    mha_ctx *ctx;
    mha_file *file;
    verify_memory memory;
    verify_case *outcome;
    verify_log *log;
    bool from_seed;
    mha_rng at_parameters, at_dropout; /* generator state before the first parameter, and before dropout */
    struct {
        const char *name;
        float *data;
    } drawn[SEED_DRAWS];
    int drawn_count;
    double atol, rtol;
} seed_case;

/* ---- golden_draws.c ---- */

/* Samples everything in the order of the index. */
void seed_draw(seed_case *c);
bool seed_has(const seed_case *c, const char *name);
/* The elements of a tensor of this shape (-1: any dimension, returned in shape[]); NULL and an error for another shape.
 */
float *seed_values(seed_case *c, const char *name, int rank, int64_t *shape);
float *seed_alloc(seed_case *c, int64_t count);

/* Compares `count` elements with the recorded tensor, and with the digits that the walk-through prints. */
void seed_compare(seed_case *c, const char *name, const float *got, int64_t count);
/* The same for indices, which must be equal. */
void seed_compare_integers(seed_case *c, const char *name, const int64_t *got, int64_t count);
/* Ends the case with the library's error. */
bool seed_ok(seed_case *c, mha_status status, const mha_error *error);

/* An integer of the case's configuration. */
int64_t seed_integer(const seed_case *c, const char *key);

/* ---- a layer at work on a case: golden_layers.c makes and feeds it, golden_recorded.c compares ---- */

typedef struct layer_case {
    seed_case *c;
    mha_variant *layer;
    mha_trace *trace;
    mha_variant_input in;
    int64_t d_out;
    float *output;
    const char *query, *key, *value; /* names of the inputs; NULL = not an input of this layer */
} layer_case;

void layer_compare_forward(layer_case *l);
/* Runs the backward pass with the recorded gradient of the output. */
void layer_compare_backward(layer_case *l);

/* ---- the cases ---- */

/* Runs a case of a whole layer (golden_layers.c), or of a single operation (golden_steps.c); returns false if the case
 * is of another kind. */
bool seed_layer(seed_case *c);
bool seed_step(seed_case *c);
/* Tables of counts (golden_tables.c): parameters, head configurations, kept heads. */
mha_status verify_tables(mha_ctx *ctx, const json_t *tables, verify_log *log, mha_error *error);

#endif

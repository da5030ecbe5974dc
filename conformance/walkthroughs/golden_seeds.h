/* golden_seeds.h - declares a case of a walk-through. Its tensors are stored, or sampled from its seed.
 * */
#ifndef CONFORMANCE_WALKTHROUGHS_GOLDEN_SEEDS_H
#define CONFORMANCE_WALKTHROUGHS_GOLDEN_SEEDS_H

#include "conformance/golden_folder.h"

enum { SEED_DRAWS = 600 };

/* A case, run in one of two ways. Stored: all tensors are read from the file. From the seed: tensors that the index
 * lists as sampled are sampled again and used; they must be bitwise identical to the file. */
typedef struct seed_case {
    verify_entry entry, config;
    mha_ctx *ctx;
    mha_file *file;
    verify_memory memory;
    verify_case *outcome;
    verify_log *log;
    bool from_seed;
    mha_rng at_parameters, at_dropout; /* states of the generator before the first parameter and before dropout */
    struct {
        const char *name;
        float *data;
    } drawn[SEED_DRAWS];
    int drawn_count;
    double atol, rtol;
} seed_case;

/* ---- golden_draws.c ---- */

/* Samples all tensors in the order of the index. */
void seed_draw(seed_case *c);
bool seed_has(const seed_case *c, const char *name);
/* Returns the elements of a tensor of this shape (-1: any dimension, returned in shape[]); NULL and an error for
   another shape.
 */
float *seed_values(seed_case *c, const char *name, int rank, int64_t *shape);
float *seed_alloc(seed_case *c, int64_t count);

/* Compares `count` elements with the recorded tensor and with the printed digits. */
void seed_compare(seed_case *c, const char *name, const float *got, int64_t count);
/* Compares indices. They must be equal. */
void seed_compare_integers(seed_case *c, const char *name, const int64_t *got, int64_t count);
/* Returns true if `status` is MHA_OK; else ends the case with the library's error. */
bool seed_ok(seed_case *c, mha_status status, const mha_error *error);

/* Returns an integer of the case's configuration. */
int64_t seed_integer(const seed_case *c, const char *key);

/* ---- layer of a case: golden_layers.c creates and runs it, golden_recorded.c compares its results ---- */

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

/* ---- cases ---- */

/* Run a case of a whole layer (golden_layers.c) or of a single operation (golden_steps.c); return false for another
 * kind of case. */
bool seed_layer(seed_case *c);
bool seed_step(seed_case *c);
/* Checks tables of counts (golden_tables.c): parameters, head configurations, kept heads. */
mha_status verify_tables(mha_ctx *ctx, const json_t *tables, verify_log *log, mha_error *error);

#endif

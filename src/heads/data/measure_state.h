/* measure_state.h - a measure that can be interrupted and resumed: its sums in a file.
 *
 * A measure runs batch after batch (head_data.h) and adds to sums. Its state is these sums and how far it has come, in
 * a safetensors file that is replaced whole, now and then and at the end. What is read back are the very doubles, so a
 * run that was killed and resumed has the bits of one that was not. A file of another model, of other data or of other
 * options is refused.
 *
 *     mha__state state;
 *     int64_t done;
 *     MHA__TRY(mha__state_open(&state, model, data, &what, sums, count, &done, err));
 *     for (; done < batches; ) {
 *         ... add batch `done` to the sums ...
 *         MHA__TRY(mha__state_keep(&state, ++done, err));
 *     }
 */
#ifndef MHA_HEADS_DATA_MEASURE_STATE_H
#define MHA_HEADS_DATA_MEASURE_STATE_H

#include "mha/head_data.h"
#include "mha/io.h"

/* What is measured, and where its state is kept. Strings live as long as the state. */
typedef struct mha__state_of {
    const char *path;    /* NULL = no file: nothing is read or written */
    const char *options; /* all on which the sums depend beside model and data, in words: "heads, probe seed 0" */
    int64_t steps;       /* in all; when so many are done the state is written in any case */
} mha__state_of;

typedef struct mha__state {
    mha_ctx *ctx;
    mha__state_of of;
    const mha_named_tensor *sums;
    int64_t count;
    char model[24], data[24]; /* fingerprints, as the file has them */
    double kept, took;        /* when the file was written last, in seconds, and how long that took */
} mha__state;

/* `sums`, [count] of f64 (or i64) in the caller's memory, are filled from the file, if there is one, and *done says how
 * far it had come; else they stay as they are and *done is 0. The list and its memory outlive the state. Errors:
 * MHA_ERR_ARG for a state of something else, saying of what; MHA_ERR_FORMAT and MHA_ERR_IO, naming the file. Cost: with
 * a path, the weights are read once, and one forward pass over a few tokens: the model's fingerprint. */
mha_status mha__state_open(mha__state *state, const mha_model *model, const mha_head_data *data,
                           const mha__state_of *of, const mha_named_tensor *sums, int64_t count, int64_t *done,
                           mha_error *err);

/* To be called after each step. Writes the file where it is time to: at most once a second, less often where writing
 * takes long, and at the last step. */
mha_status mha__state_keep(mha__state *state, int64_t done, mha_error *err);
/* Writes it now, as before a run that was cancelled ends. */
mha_status mha__state_save(mha__state *state, int64_t done, mha_error *err);

#endif

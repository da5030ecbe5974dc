/* measure_state.h - stores the sums of a measure in a file, so that it can be interrupted and resumed. The results of
 * patching (circuits/patch.c) are stored in the same way.
 *
 * A measure processes batch after batch (head_data.h) and adds to sums. Its state consists of these sums and the number
 * of finished steps, in a safetensors file that is replaced atomically, periodically and at the end. The doubles are
 * stored exactly, so the result of a resumed run is bitwise identical to that of an uninterrupted run. A file from
 * another model, other data or other options is rejected.
 *
 *     mha__state state;
 *     int64_t done;
 *     MHA__TRY(mha__state_open(&state, model, &what, sums, count, &done, err));
 *     for (; done < batches; ) {
 *         ... add batch `done` to the sums ...
 *         MHA__TRY(mha__state_keep(&state, ++done, err));
 *     } */
#ifndef MHA_HEADS_DATA_MEASURE_STATE_H
#define MHA_HEADS_DATA_MEASURE_STATE_H

#include "mha/io.h"
#include "mha/model.h"

/* Identifies a measure and its state file. The strings must outlive the state. */
typedef struct mha__state_of {
    const char *path;    /* NULL = no file is read or written */
    const char *options; /* everything except model and data that the sums depend on, as text: "heads, probe seed 0" */
    int64_t steps;       /* total number of steps; the state is always written after the last step */
    const char *mark;    /* fingerprint of the data, such as that of mha__head_data_mark; unused without a path */
} mha__state_of;

typedef struct mha__state {
    mha_ctx *ctx;
    mha__state_of of;
    const mha_named_tensor *sums;
    int64_t count;
    char model[17];    /* fingerprint of the model, as stored in the file */
    double kept, took; /* time of the last write, and its duration [s] */
} mha__state;

/* If the file exists, reads it into `sums`, `count` tensors of f64 or i64 in the caller's memory, and sets *done to
 * the number of finished steps. Otherwise, leaves the sums unchanged and sets *done to 0. The list and its memory
 * must outlive the state. Errors: MHA_ERR_ARG if the state is from another
 * measure, naming the difference; MHA_ERR_FORMAT and MHA_ERR_IO, naming the file. Cost: with a path, one read of
 * the weights and one forward pass over a few tokens, for the model's fingerprint. */
mha_status mha__state_open(mha__state *state, const mha_model *model, const mha__state_of *of,
                           const mha_named_tensor *sums, int64_t count, int64_t *done, mha_error *err);

/* Must be called after each step. Writes the file if it is due: at most once per second, less often if writing is
 * slow, and at the last step. */
mha_status mha__state_keep(mha__state *state, int64_t done, mha_error *err);
/* Writes the file now, for example before a canceled run ends. */
mha_status mha__state_save(mha__state *state, int64_t done, mha_error *err);

#endif

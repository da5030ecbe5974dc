/* train_data_struct.h - training data: runs of consecutive tokens, which are divided into sequences. */
#ifndef MHA_TRAIN_DATA_TRAIN_DATA_STRUCT_H
#define MHA_TRAIN_DATA_TRAIN_DATA_STRUCT_H

#include "mha/io.h"
#include "mha/train_data.h"
#include <stdbool.h>

/* Consecutive tokens: those of all texts, or of a token file. */
typedef struct mha__token_run {
    const void *ids; /* [count], possibly misaligned */
    int64_t count, sequences;
    mha_dtype dtype;
    int64_t *ends;  /* [sequences] with texts_apart: the end of each text */
    void *memory;   /* owned tokens of texts; else NULL */
    mha_file *file; /* owned token file; else NULL */
} mha__token_run;

struct mha_train_data {
    mha_ctx *ctx;
    mha_train_data_options o;
    mha__token_run *run; /* [runs] */
    int64_t runs, room;
    mha__token_run text;          /* collects texts; becomes a run at the end */
    int64_t text_room, ends_room; /* capacity of its tokens and ends */
    bool inside;                  /* a part of the current text has already been added */
    bool finished;
    mha_train_digest digest;
    mha_train_data_info info;
};

/* Checks the ids of a complete run, adds them to the digest and appends the run. The data take ownership of the run.
 * `name` is the file in error messages, NULL for texts. */
mha_status mha__train_data_append(mha_train_data *data, mha__token_run *run, const char *name, mha_error *err);
void mha__token_run_free(mha_ctx *ctx, mha__token_run *run);

#endif

/* train_data_struct.h - training data: runs of consecutive tokens, from which sequences are cut. */
#ifndef MHA_TRAIN_DATA_TRAIN_DATA_STRUCT_H
#define MHA_TRAIN_DATA_TRAIN_DATA_STRUCT_H

#include "mha/io.h"
#include "mha/train_data.h"
#include <stdbool.h>

/* Consecutive tokens: all texts, or a token file. */
typedef struct mha__token_run {
    const void *ids; /* [count] may be misaligned */
    int64_t count, sequences;
    mha_dtype dtype;
    int64_t *ends;  /* [sequences] with texts_apart: the end of each text */
    void *memory;   /* of texts; else NULL */
    mha_file *file; /* of a token file; else NULL */
} mha__token_run;

struct mha_train_data {
    mha_ctx *ctx;
    mha_train_data_options o;
    mha__token_run *run; /* [runs] */
    int64_t runs, room;
    mha__token_run text;          /* while texts are added; then it becomes a run */
    int64_t text_room, ends_room; /* of its tokens and ends */
    bool inside;                  /* a part of the current text has been added */
    bool finished;
    mha_train_digest digest;
    mha_train_data_info info;
};

/* Checks the ids of a complete run, adds them to the digest, and appends the run, which the data then own. `name` is
 * the file in errors, NULL for texts. */
mha_status mha__train_data_append(mha_train_data *data, mha__token_run *run, const char *name, mha_error *err);
void mha__token_run_free(mha_ctx *ctx, mha__token_run *run);

#endif

/* train_data_struct.h - training data: runs of consecutive tokens, which are divided into sequences. */
#ifndef MHA_TRAIN_DATA_TRAIN_DATA_STRUCT_H
#define MHA_TRAIN_DATA_TRAIN_DATA_STRUCT_H

#include "mha/io.h"
#include "mha/train_data.h"
#include <stdbool.h>

/* Consecutive tokens: the tokens of all texts, or of one token file. */
typedef struct mha__token_run {
    const void *ids; /* [count], possibly misaligned */
    int64_t count, sequences;
    mha_dtype dtype;
    int64_t *ends;  /* [sequences] the end of each text; NULL unless texts_apart */
    void *memory;   /* the owned tokens of texts; NULL for a token file */
    mha_file *file; /* the owned token file; NULL for texts */
} mha__token_run;

struct mha_train_data {
    mha_ctx *ctx;
    mha_train_data_options o;
    mha__token_run *run; /* [runs] */
    int64_t runs, room;
    mha__token_run text;          /* collects texts; appended to `run` when the data are finished */
    int64_t text_room, ends_room; /* capacity of text.memory and text.ends */
    bool inside;                  /* true if a part of the current text has already been added */
    bool finished;
    mha_train_digest digest;
    mha_train_data_info info;
};

/* Checks the ids of a complete run, adds them to the digest, appends the run to the data and takes ownership of it.
 * `name` is the file name for error messages; NULL for texts. */
mha_status mha__train_data_append(mha_train_data *data, mha__token_run *run, const char *name, mha_error *err);
void mha__token_run_free(mha_ctx *ctx, mha__token_run *run);

#endif

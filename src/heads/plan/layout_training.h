/* layout_training.h - declarations shared by the files that train head layouts. */
#ifndef MHA_HEADS_PLAN_LAYOUT_TRAINING_H
#define MHA_HEADS_PLAN_LAYOUT_TRAINING_H

#include "mha/layout_training.h"
#include <stdbool.h>

/* Checked options, with defaults. */
typedef struct mha__layout_setup {
    mha_layout_training o;
    mha_head_layout_options layout;
    mha_train_options train;
    const mha_train_data *held; /* data that contains the held-out sequences */
    int64_t learned;            /* number of sequences to train on, from the first sequence of o.data */
    int64_t held_first, held_count;
} mha__layout_setup;

/* Checks the options. `setup` has copies of all options, and pointers to the data. */
mha_status mha__layout_setup_read(const mha_layout_training *options, mha__layout_setup *setup, mha_error *err);

#endif

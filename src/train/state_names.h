/* state_names.h - names in checkpoints of training runs, shared by writers and readers. */
#ifndef MHA_TRAIN_STATE_NAMES_H
#define MHA_TRAIN_STATE_NAMES_H

#define MHA__TRAIN_STATE "training.safetensors" /* the file of the optimizer state */
#define MHA__TRAIN_STEP "mha.train.step"        /* key of its metadata: the number of finished steps */

#endif

/* train_shuffle.h - what is drawn while training: the order of the sequences, and the tokens that encoders are to
 * predict. All of it follows from the seed and a place, so a training that goes on needs no state but its step. */
#ifndef CLI_TRAIN_TRAIN_SHUFFLE_H
#define CLI_TRAIN_TRAIN_SHUFFLE_H

#include "train/train_data.h"

/* The sequence at `place` of the pass `epoch` over `count` of them: each comes once in every pass. In constant time and
 * memory: a Feistel cipher of four rounds over the next power of 4, walked until it is in range (Black and Rogaway
 * 2002). */
int64_t train_draw_sequence(uint64_t seed, int64_t epoch, int64_t place, int64_t count);

/* Of the tokens of a sequence that are not special, `share` (one at least) become labels, the others MHA_IGNORE; of
 * those 80 % are replaced by the mask, 10 % by any token, and 10 % stay (Devlin et al. 2018). `number` is that of the
 * sequence since training began; below 0 for those that are not learned from. */
void train_draw_mask(const train_form *form, double share, uint64_t seed, int64_t number, int32_t *ids,
                     int32_t *labels);

#endif

/* head_numbers.h - the numbers that heads had in the unpruned model, for query heads and for key/value heads. Sites k
 * and v have key/value heads, all other sites query heads. */
#ifndef CLI_CIRCUITS_HEAD_NUMBERS_H
#define CLI_CIRCUITS_HEAD_NUMBERS_H

#include <mha/mha.h>

/* Returns the number in the unpruned model of the head at a position of a layer, and the position of a number; -1 if
 * the layer does not have the head. Key/value heads are numbered by the number of their query heads, divided by the
 * query heads per key/value head; by position in layers whose query heads were reordered (mha_regroup). */
int64_t head_number(const mha_model *model, mha_site site, int64_t layer, int64_t head);
int64_t head_place(const mha_model *model, mha_site site, int64_t layer, int64_t number);
/* Returns the largest number of a head plus 1. */
int64_t head_columns(const mha_model *model, mha_site site);
/* Returns the number of query heads that read one head of the site: 1 for query heads. */
int64_t head_readers(const mha_model *model, mha_site site, int64_t layer);

#endif

/* sentence_vector.h - sentence vectors: the mean of a text's last hidden states, scaled to length 1, and its
 * gradient. */
#ifndef MHA_LAYER_LOSS_SENTENCE_VECTOR_H
#define MHA_LAYER_LOSS_SENTENCE_VECTOR_H

#include <stdint.h>

/* e [width] from the rows of one text; returns the length of the mean before scaling. A mean of zeros stays so. */
double mha__unit(const float *hidden, int64_t rows, int64_t width, double *e);

/* From de, the gradient of e, to that of every row: `out` [rows, width], all rows alike. */
void mha__unit_back(const double *e, double length, const double *de, int64_t rows, int64_t width, float *out);

#endif

/* sentence_vector.h - sentence vectors: the mean of a text's last hidden states, L2-normalized, and its gradient. */
#ifndef MHA_LAYER_LOSS_SENTENCE_VECTOR_H
#define MHA_LAYER_LOSS_SENTENCE_VECTOR_H

#include <stdint.h>

/* Computes e [width] from the rows of one text; returns the norm of the mean before normalization. A zero mean stays
 * zero. */
double mha__unit(const float *hidden, int64_t rows, int64_t width, double *e);

/* Computes out [rows, width], the gradient of every row, from de, the gradient of e; all rows are equal. */
void mha__unit_back(const double *e, double length, const double *de, int64_t rows, int64_t width, float *out);

#endif

/* sentence_vector.h - sentence vectors: the mean of a text's last hidden states, L2-normalized, and its gradient. */
#ifndef MHA_LAYER_LOSS_SENTENCE_VECTOR_H
#define MHA_LAYER_LOSS_SENTENCE_VECTOR_H

#include <stdint.h>

/* Sets e [width] to the sentence vector of one text, from its hidden states [rows, width]. Returns the L2 norm of the
 * mean before normalization. If the mean is zero, e is zero. */
double mha__unit(const float *hidden, int64_t rows, int64_t width, double *e);

/* Sets out [rows, width] to the gradients of the hidden states, which are equal in all rows. de is the gradient of e,
 * and `length` the return value of mha__unit. */
void mha__unit_back(const double *e, double length, const double *de, int64_t rows, int64_t width, float *out);

#endif

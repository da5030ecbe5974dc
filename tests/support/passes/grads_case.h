/* grads_case.h - models, inputs and labels for tests of gradients of whole models. */
#ifndef TEST_GRADS_CASE_H
#define TEST_GRADS_CASE_H

#include "mha/model_grads.h"
#include <stdbool.h>

enum { GRADS_B = 2, GRADS_L = 12, GRADS_FAMILIES = 11 };
extern const char *const grads_families[GRADS_FAMILIES]; /* folders of models that have logits */

/* The batch of grads_input: [B, L] ids, labels and mask. */
extern int32_t grads_ids[GRADS_B * GRADS_L], grads_labels[GRADS_B * GRADS_L];
extern uint8_t grads_mask[GRADS_B * GRADS_L];
/* Returns a batch of two sequences. If `holes` is true, one token of each is masked; otherwise, the second sequence is
 * shorter and padded. */
mha_model_input grads_input(const mha_model *model, bool holes);

/* Creates the gradients of a model; on failure, fails the running test with the error message. */
mha_model_grads *grads_create(const mha_model *model, int no_parameters, int recompute);
/* Computes the loss of grads_labels and adds its gradients. gates and dgates, their gradient, may be NULL. */
double grads_loss(mha_model_grads *grads, const mha_model_input *input, const float *gates, float *dgates);
/* Returns the gradient of a tensor. */
const mha_named_tensor *grads_tensor(const mha_model_grads *grads, const char *name);
/* Returns all gradients in one array, which the caller must free, and stores their number in *count. */
float *grads_all(const mha_model_grads *grads, int64_t *count);

#endif

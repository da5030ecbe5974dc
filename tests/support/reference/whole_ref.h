/* whole_ref.h - whole models and their losses computed directly from formulas in double: the reference for gradients
 * of whole models. Shares no code with src/; supports GPT-2, LLaMA and Qwen3, Gemma-2, and BERT with its MLM head. */
#ifndef TEST_WHOLE_REF_H
#define TEST_WHOLE_REF_H

#include "mha/io.h"
#include "mha/model.h"

/* The parameters that tensor shapes do not determine. 0 = the family's default. */
typedef struct whole_config {
    double eps;
    double theta;               /* base of rotary embeddings */
    double attn_cap, logit_cap; /* softcaps of Gemma-2 */
    double query_scalar;        /* scores are divided by sqrt(query_scalar); 0 = head_dim */
    int64_t window;             /* window of every second layer, beginning with the first [tokens]; 0 = all */
} whole_config;

/* Mutable weights in double, with the names and shapes of `list`. */
typedef struct whole_model {
    const mha_model_info *info;
    whole_config config;
    const mha_named_tensor *list; /* [count] f32 weights of the model */
    int64_t count;
    double **value; /* values of each tensor, [count] */
    double *room;
} whole_model;

/* Makes a reference model. `model` and `list` must outlive it. */
whole_model whole_open(const mha_model *model, const whole_config *config, const mha_named_tensor *list, int64_t count);
void whole_free(whole_model *w);
int64_t whole_elements(const mha_named_tensor *tensor);

/* The inputs of one sequence. */
typedef struct whole_input {
    int64_t length;
    const int32_t *ids, *types; /* [L]; types may be NULL (all 0) */
    const uint8_t *mask;        /* [L] */
    const int32_t *labels;      /* [L], as in mha_model_loss_args; must not be NULL */
    const double *gates;        /* [layers, H] */
    const double *shift;        /* [L, E] added to each token's row of the word embedding table */
} whole_input;

/* Returns the sum of the cross-entropies; adds the number of labels used to *counted. */
double whole_loss(const whole_model *w, const whole_input *in, int64_t *counted);

#endif

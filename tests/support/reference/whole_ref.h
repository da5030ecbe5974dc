/* whole_ref.h - computes complete models and their losses directly from formulas in double, as the reference for the
 * gradients of models. Shares no code with src/; supports GPT-2, LLaMA, Qwen3, Gemma-2, and BERT with its MLM head. */
#ifndef TEST_WHOLE_REF_H
#define TEST_WHOLE_REF_H

#include "mha/io.h"
#include "mha/model.h"

/* The parameters that the shapes of the tensors do not determine; 0: the default of the family. */
typedef struct whole_config {
    double eps;
    double theta;               /* base of rotary position embeddings */
    double attn_cap, logit_cap; /* softcaps of Gemma-2 */
    double query_scalar;        /* scores are divided by sqrt(query_scalar); 0: head_dim */
    int64_t window;             /* window of layers 0, 2, 4 ... [tokens]; 0: no window */
} whole_config;

/* A reference model with mutable weights in double. The weights have the names and shapes of `list`. */
typedef struct whole_model {
    const mha_model_info *info;
    whole_config config;
    const mha_named_tensor *list; /* [count] the f32 weights of the model */
    int64_t count;
    double **value; /* [count] the elements of each tensor in double */
    double *room;
} whole_model;

/* Creates a reference model. `model` and `list` must outlive it. */
whole_model whole_open(const mha_model *model, const whole_config *config, const mha_named_tensor *list, int64_t count);
void whole_free(whole_model *w);
int64_t whole_elements(const mha_named_tensor *tensor);

/* The inputs of one sequence. */
typedef struct whole_input {
    int64_t length;
    const int32_t *ids, *types; /* [L]; types may be NULL (all 0) */
    const uint8_t *mask;        /* [L] */
    const int32_t *labels;      /* [L], as in mha_model_loss_args */
    const double *gates;        /* [layers, H] */
    const double *shift;        /* [L, E], added to the word embedding of each token */
} whole_input;

/* Returns the sum of the cross-entropies of all labels; adds the number of labels to *counted. */
double whole_loss(const whole_model *w, const whole_input *in, int64_t *counted);

#endif

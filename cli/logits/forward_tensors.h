/* forward_tensors.h - copies the tensors of one forward pass by name: logits, hidden states, attention maps. */
#ifndef CLI_LOGITS_FORWARD_TENSORS_H
#define CLI_LOGITS_FORWARD_TENSORS_H

#include "command.h"

typedef struct captured_tensors {
    const mha_model *model;
    int64_t length, vocab;
    float *logits; /* [rows, vocab] for all tokens, or for the last token; NULL if the checkpoint has no output head */
    /* sequence length L, or 1; image classifiers: 1, and vocab is the number of classes; discriminators: L, and vocab
     * is 1 */
    int64_t rows;
    /* [count] tensors: "logits" [L, vocab]; "hidden.N" [L, E], where hidden.0 contains the embeddings; "attn.N"
     * [heads, L, L] of layer N, or "attn.N.H" [L, L] of selected head H by its original number; "row_entropy.N" and
     * other row statistics [heads, L] */
    mha_named_tensor *list;
    int64_t count;
    char (*names)[32];
    const mha_model_head *heads; /* the next selected head to copy; NULL = all heads */
    int64_t hidden;              /* hidden size E */
    bool out_of_memory;
} captured_tensors;

/* The tensors to copy. */
enum { CAPTURE_ALL_LOGITS = 1, CAPTURE_HIDDEN = 2, CAPTURE_ATTENTIONS = 4, CAPTURE_STATS = 8 };
typedef struct capture_request {
    unsigned keep;
    const mha_model_head *heads; /* [head_count] ascending: heads whose maps are copied; NULL = all */
    int64_t head_count;
    const mha_model_input *source;   /* encoder-decoders: the input of the encoder */
    const float *gates, *fills;      /* as in mha_model_input; NULL = none */
    const mha_attention_edge *edges; /* [edge_count] removed edges; NULL = none */
    int64_t edge_count;
    bool views;          /* other results are read from further passes: a model without logits is no error */
    const float *pixels; /* models of images: the pixels of one image, instead of ids */
} capture_request;

/* Runs a forward pass on ids [length] with the gates, fills, removed edges, source and pixels of `request`. */
mha_status forward_pass(const cli_session *session, const mha_model *model, const int32_t *ids, int64_t length,
                        const capture_request *request, const mha_model_output *output, mha_error *error);

/* Runs a forward pass on ids [length] and copies the tensors of `request`. A checkpoint without logits is an error
 * unless other tensors are requested; then only a log line reports the missing logits. Returns an exit code; call
 * captured_tensors_free even after an error. */
int capture_tensors(cli_session *session, const mha_model *model, const int32_t *ids, int64_t length,
                    const capture_request *request, captured_tensors *t);
void captured_tensors_free(captured_tensors *t);

#endif

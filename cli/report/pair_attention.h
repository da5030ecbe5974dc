/* pair_attention.h - the attention maps of one kind of attention of an encoder-decoder, and their statistics. */
#ifndef CLI_REPORT_PAIR_ATTENTION_H
#define CLI_REPORT_PAIR_ATTENTION_H

#include "command.h"
#include <jansson.h>

/* All maps of a kind, on one text: rows are query tokens, columns key tokens. */
typedef struct pair_attention {
    const char *key, *title; /* such as "cross" and "Cross-attention" */
    int64_t layers, heads, rows, columns;
    const int32_t *queries, *keys; /* [rows], [columns] token ids; the same pointer in self-attention */
    bool causal;
    float *maps; /* [layers, heads, rows, columns] */
} pair_attention;

/* Allocates the maps; returns false if memory is exhausted. */
bool pair_attention_open(pair_attention *attention);
void pair_attention_free(pair_attention *attention);
/* Stores the maps [heads, rows, columns] of a layer; the callbacks of a forward pass call it. */
void pair_attention_keep(pair_attention *attention, int64_t layer, int64_t heads, const float *probs);

/* Set *metrics to {name: [layers][heads]} and *labels to [layers][heads]. Self-attention has the metrics of mha heads
 * without those of probe texts. Cross-attention has those that do not compare positions of both texts. Returns an exit
 * code. */
int pair_attention_measure(const cli_session *session, const mha_tokenizer *tokenizer, const pair_attention *attention,
                           json_t **metrics, json_t **labels);

/* Return [layers][heads] head numbers, and [layers][heads][rows][columns] weights. */
json_t *pair_attention_numbers(const pair_attention *attention);
json_t *pair_attention_weights(const pair_attention *attention);

#endif

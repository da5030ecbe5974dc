/* heads_json.h - head measurements as JSON, with the same keys in `mha heads`, `mha report` and the page. */
#ifndef CLI_HEADS_HEADS_JSON_H
#define CLI_HEADS_HEADS_JSON_H

#include "mha/mha.h"
#include <jansson.h>

/* Appends `item`, taking ownership of it, and returns `array`. On failure, or if either is NULL, frees both and returns
 * NULL. */
json_t *heads_json_append(json_t *array, json_t *item);

/* Returns an array [layers][heads] of the values that item(heads, layer, head, arg) returns as new references. */
typedef json_t *(*heads_json_item)(const mha_heads *heads, int64_t layer, int64_t head, const void *arg);
json_t *heads_json_each(const mha_heads *heads, heads_json_item item, const void *arg);

/* The following functions return a new reference; NULL if memory is exhausted. */
json_t *heads_json_metrics(const mha_heads *heads); /* all metrics, {name: [layers][heads]} */
json_t *heads_json_labels(const mha_heads *heads);  /* [layers][heads] labels */
/* [layers][heads] numbers of the heads in the unpruned model: 0, 1, 2 ... if the model is not pruned. */
json_t *heads_json_numbers(const mha_model *model, const mha_heads *heads);
json_t *heads_json_tokens(const mha_model *model, const mha_heads *heads); /* [n] tokens as stored in the tokenizer */
json_t *heads_json_attention(const mha_heads *heads);                      /* [layers][heads][n][n] attention maps */

#endif

/* heads_json.h - head measurements as JSON, in the same shape for `mha heads`, `mha report` and the page. */
#ifndef CLI_HEADS_HEADS_JSON_H
#define CLI_HEADS_HEADS_JSON_H

#include <jansson.h>

#include "mha/mha.h"

/* Appends `item` and takes ownership. Returns `array`; on failure, or if one is NULL, frees both and returns NULL. */
json_t *heads_json_append(json_t *array, json_t *item);

/* Returns [layers][heads] of the results of item(heads, layer, head, arg), each a new reference. */
typedef json_t *(*heads_json_item)(const mha_heads *heads, int64_t layer, int64_t head, const void *arg);
json_t *heads_json_each(const mha_heads *heads, heads_json_item item, const void *arg);

/* The following functions return a new reference; NULL if memory is exhausted. */
json_t *heads_json_metrics(const mha_heads *heads); /* all metrics, {name: [layers][heads]} */
json_t *heads_json_labels(const mha_heads *heads);  /* [layers][heads] labels */
/* [layers][heads] numbers of the heads in the unpruned model: 0, 1, 2 ... if the model records none. */
json_t *heads_json_numbers(const mha_model *model, const mha_heads *heads);
json_t *heads_json_tokens(const mha_model *model, const mha_heads *heads); /* [n] tokens as the tokenizer spells them */
json_t *heads_json_attention(const mha_heads *heads);                      /* [layers][heads][n][n] attention maps */

#endif

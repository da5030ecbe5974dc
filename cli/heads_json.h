/* heads_json.h - what was measured of the heads, as JSON: one shape for `mha heads`, `mha report` and the page. */
#ifndef CLI_HEADS_JSON_H
#define CLI_HEADS_JSON_H

#include <jansson.h>

#include "mha/mha.h"

/* Each returns a new reference; NULL when memory is short. */
json_t *heads_json_metrics(const mha_heads *heads);                        /* {name: [layers][heads]} */
json_t *heads_json_labels(const mha_heads *heads);                         /* [layers][heads] */
json_t *heads_json_tokens(const mha_model *model, const mha_heads *heads); /* [n] as the tokenizer spells them */
json_t *heads_json_attention(const mha_heads *heads);                      /* [layers][heads][n][n] */

#endif

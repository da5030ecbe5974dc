/* info_attention.h - describes the attention of each layer for `mha info`. */
#ifndef CLI_RUN_INFO_ATTENTION_H
#define CLI_RUN_INFO_ATTENTION_H

#include "command.h"
#include <jansson.h>

/* Returns one object per layer, {window, rotary, qk_norm, alibi, scale, softcap, ...}, with the keys of
 * "mha.attention". */
json_t *info_attention_json(const mha_model_info *info);
/* Prints a line per kind of attention, such as "rotary, window 64 in layers 1, 3", without layers if all layers have
 * the same attention. Lines after the first are indented. */
void info_put_attention(const cli_session *session, int indent, const mha_model_info *info);

#endif

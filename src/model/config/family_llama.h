/* family_llama.h - keys and parts that decoders derived from LLaMA have in common. */
#ifndef MHA_MODEL_CONFIG_FAMILY_LLAMA_H
#define MHA_MODEL_CONFIG_FAMILY_LLAMA_H

#include "model/config/family_tables.h"

enum { MHA__LLAMA_COMMON = 14 }; /* keys of every family like LLaMA */
extern const mha__config_key mha__llama_common[MHA__LLAMA_COMMON];
extern const char *const mha__llama_prefixes[];

#define NORM_OF(role, norm, name) [role] = {AS(norm, name, FIELD(hidden), 0)}

/* The parts outside the layers, and the projections of attention: `norm` is the kind of norm; `qkv` and `o` define
 * whether these projections have biases. */
#define LLAMA_STATES(norm) \
    [MHA__WORDS] = {AS(TABLE, "embed_tokens", FIELD(vocab), FIELD(hidden))}, NORM_OF(MHA__FINAL_NORM, norm, "norm")
#define LLAMA_OUTER(norm) \
    LLAMA_STATES(norm), [MHA__LM_HEAD] = {AS(TABLE, "/lm_head", FIELD(vocab), FIELD(hidden)), .optional = true}
#define LLAMA_ATTENTION(qkv, o)                                                            \
    [MHA__QUERY] = {AS(LINEAR, "self_attn.q_proj", WIDTH(q), FIELD(hidden)), .bias = qkv}, \
    [MHA__KEY] = {AS(LINEAR, "self_attn.k_proj", WIDTH(k), FIELD(hidden)), .bias = qkv},   \
    [MHA__VALUE] = {AS(LINEAR, "self_attn.v_proj", WIDTH(v), FIELD(hidden)), .bias = qkv}, \
    [MHA__ATTN_OUT] = {AS(LINEAR, "self_attn.o_proj", FIELD(hidden), WIDTH(q)), .bias = o}
#define HEAD_NORM_OF(role, norm, name) [role] = {AS(norm, name, FIELD(head_dim), 0)}
#define HEAD_NORMS(norm) \
    HEAD_NORM_OF(MHA__QUERY_NORM, norm, "self_attn.q_norm"), HEAD_NORM_OF(MHA__KEY_NORM, norm, "self_attn.k_norm")
#define LLAMA_FEED                                                                                            \
    [MHA__GATE] = {AS(LINEAR, "mlp.gate_proj", FIELD(intermediate), FIELD(hidden)), .bias = FIELD(mlp_bias)}, \
    [MHA__UP] = {AS(LINEAR, "mlp.up_proj", FIELD(intermediate), FIELD(hidden)), .bias = FIELD(mlp_bias)},     \
    [MHA__DOWN] = {AS(LINEAR, "mlp.down_proj", FIELD(hidden), FIELD(intermediate)), .bias = FIELD(mlp_bias)}
#define LLAMA_LAYER(norm, qkv, o) LLAMA_ATTENTION(qkv, o), HEAD_NORMS(norm), LLAMA_FEED
#define LLAMA_PARTS(norm, qkv, o) LLAMA_OUTER(norm), LLAMA_LAYER(norm, qkv, o)

#define LLAMA_BASE                                                                                   \
    .common = mha__llama_common, .common_count = MHA__LLAMA_COMMON, .prefixes = mha__llama_prefixes, \
    .layer = "layers.", .pre_norm = true, .causal = true, .rotary = true
#define LLAMA_LIKE LLAMA_BASE, .head_keys = true

#endif

/* gguf_parts_t5.c - the parts of T5, whose names depend on whether the feed-forward has a gate. */
#include "model/gguf/gguf_parts.h"

#define SIDE(own, theirs)                                                                                        \
    {theirs ".output_norm", own ".final_layer_norm", MHA__GGUF_SAME},                                            \
        {theirs ".blk.*.attn_norm", own ".block.*.layer.0.layer_norm", MHA__GGUF_SAME},                          \
        {theirs ".blk.*.attn_q", own ".block.*.layer.0.SelfAttention.q", MHA__GGUF_SAME},                        \
        {theirs ".blk.*.attn_k", own ".block.*.layer.0.SelfAttention.k", MHA__GGUF_SAME},                        \
        {theirs ".blk.*.attn_v", own ".block.*.layer.0.SelfAttention.v", MHA__GGUF_SAME},                        \
        {theirs ".blk.*.attn_o", own ".block.*.layer.0.SelfAttention.o", MHA__GGUF_SAME},                        \
    {                                                                                                            \
        theirs ".blk.*.attn_rel_b", own ".block.*.layer.0.SelfAttention.relative_attention_bias", MHA__GGUF_SAME \
    }

#define CROSS                                                                                    \
    {"dec.blk.*.cross_attn_norm", "decoder.block.*.layer.1.layer_norm", MHA__GGUF_SAME},         \
        {"dec.blk.*.cross_attn_q", "decoder.block.*.layer.1.EncDecAttention.q", MHA__GGUF_SAME}, \
        {"dec.blk.*.cross_attn_k", "decoder.block.*.layer.1.EncDecAttention.k", MHA__GGUF_SAME}, \
        {"dec.blk.*.cross_attn_v", "decoder.block.*.layer.1.EncDecAttention.v", MHA__GGUF_SAME}, \
    {                                                                                            \
        "dec.blk.*.cross_attn_o", "decoder.block.*.layer.1.EncDecAttention.o", MHA__GGUF_SAME    \
    }

#define FEED(own, theirs, up)                                                \
    {theirs ".blk.*.ffn_norm", own ".layer_norm", MHA__GGUF_SAME},           \
        {theirs ".blk.*.ffn_up", own ".DenseReluDense." up, MHA__GGUF_SAME}, \
    {                                                                        \
        theirs ".blk.*.ffn_down", own ".DenseReluDense.wo", MHA__GGUF_SAME   \
    }

#define GATE(own, theirs)                                                    \
    {                                                                        \
        theirs ".blk.*.ffn_gate", own ".DenseReluDense.wi_0", MHA__GGUF_SAME \
    }

#define COMMON                                                                                               \
    {"token_embd", "shared", MHA__GGUF_SAME}, {"output", "lm_head", MHA__GGUF_SAME}, SIDE("encoder", "enc"), \
        SIDE("decoder", "dec"), CROSS

#define ENCODER_FEED "encoder.block.*.layer.1"
#define DECODER_FEED "decoder.block.*.layer.2"

const mha__gguf_part mha__gguf_t5[] = {
    COMMON, FEED(ENCODER_FEED, "enc", "wi"), FEED(DECODER_FEED, "dec", "wi"), {NULL, NULL, 0}};
const mha__gguf_part mha__gguf_t5_gated[] = {
    COMMON,
    FEED(ENCODER_FEED, "enc", "wi_1"),
    FEED(DECODER_FEED, "dec", "wi_1"),
    GATE(ENCODER_FEED, "enc"),
    GATE(DECODER_FEED, "dec"),
    {NULL, NULL, 0},
};

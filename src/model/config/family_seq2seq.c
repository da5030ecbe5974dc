/* family_seq2seq.c - encoder-decoders: T5, mT5, BART, mBART, Marian, Pegasus. Each family has a table for the encoder
 * and a table for the decoder, which has cross-attention. */
#include "model/config/family_tables.h"

/* ---- T5: pre-norm with RMSNorm, biases by relative position, scores without a scale ---- */

#define T5_KEYS(vocab_, ff_, layers_, heads_, feed_)                                                 \
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), vocab_, MHA__DIM, NULL},                              \
        {"d_model", MHA__KEY_DIM, FIELD(hidden), 512, MHA__DIM, NULL},                               \
        {"d_kv", MHA__KEY_DIM, FIELD(head_dim), 64, MHA__DIM, NULL},                                 \
        {"d_ff", MHA__KEY_DIM, FIELD(intermediate), ff_, MHA__DIM, NULL},                            \
        {"num_layers", MHA__KEY_DIM, FIELD(layers), layers_, MHA__LAYERS, NULL},                     \
        {"num_heads", MHA__KEY_DIM, FIELD(heads), heads_, MHA__HEADS, NULL},                         \
        {"n_positions", MHA__KEY_DIM, FIELD(max_positions), 512, MHA__DIM, NULL}, /* of a text */    \
        {"relative_attention_num_buckets", MHA__KEY_DIM, FIELD(buckets), 32, MHA__DIM, NULL},        \
        {"relative_attention_max_distance", MHA__KEY_DIM, FIELD(max_distance), 128, MHA__DIM, NULL}, \
        {"layer_norm_epsilon", MHA__KEY_POSITIVE, FIELD(eps), 1e-6, 0, NULL},                        \
        {"feed_forward_proj", MHA__KEY_FEED_FORWARD, FIELD(activation), 0, 0, feed_},                \
        {"", MHA__KEY_FIXED, FIELD(attention_multiplier), 1, 0, NULL},                               \
        {"", MHA__KEY_BOOL, FIELD(shared_words), 1, 0, NULL},                                        \
        {"is_encoder_decoder", MHA__KEY_ONLY_TRUE, 0, 0, 0, NULL}, QUANTIZATION

/* n_positions limits texts, not the model. */
static const mha__config_key t5_keys[] = {T5_KEYS(32128, 2048, 6, 8, "relu")};
static const mha__config_key mt5_keys[] = {T5_KEYS(250112, 1024, 8, 6, "gated-gelu")};

#define T5_DECODER_KEYS                                                                                    \
    {"num_decoder_layers", MHA__KEY_DIM_IF, FIELD(layers), 0, MHA__LAYERS, NULL},                          \
        {"", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},                                                      \
        {"pad_token_id", MHA__KEY_ROW, FIELD(pad), 0, MHA__DIM, NULL}, /* its embedding gets a gradient */ \
    {                                                                                                      \
        "decoder_start_token_id", MHA__KEY_ROW, FIELD(start), 0, MHA__DIM, NULL                            \
    }

/* Files of transformers 4 scale the input of the output matrix unless it is not tied; files of transformers 5 have a
 * key. Embeddings are tied unless an output matrix is stored. */
static const mha__config_key t5_decoder_keys[] = {
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(scaled_head), 1, 0, NULL},
    {"scale_decoder_outputs", MHA__KEY_BOOL_IF, FIELD(scaled_head), 0, 0, NULL},
    T5_DECODER_KEYS,
};
/* The input of the output matrix of mT5 is never scaled. */
static const mha__config_key mt5_decoder_keys[] = {T5_DECODER_KEYS};

static const char *const plain_prefixes[] = {"", NULL};

#define T5_OUTER(side)                                                                                          \
    [MHA__WORDS] = {AS(TABLE, "shared", FIELD(vocab), FIELD(hidden))},                                          \
    [MHA__RELATIVE] = {AS(TABLE, side ".block.0.layer.0.SelfAttention.relative_attention_bias", FIELD(buckets), \
                          FIELD(relative_heads))},                                                              \
    [MHA__FINAL_NORM] = {AS(RMS, side ".final_layer_norm", FIELD(hidden), 0)}

#define T5_ATTENTION                                                                   \
    [MHA__QUERY] = {AS(TABLE, "layer.0.SelfAttention.q", WIDTH(q), FIELD(hidden))},    \
    [MHA__KEY] = {AS(TABLE, "layer.0.SelfAttention.k", WIDTH(k), FIELD(hidden))},      \
    [MHA__VALUE] = {AS(TABLE, "layer.0.SelfAttention.v", WIDTH(v), FIELD(hidden))},    \
    [MHA__ATTN_OUT] = {AS(TABLE, "layer.0.SelfAttention.o", FIELD(hidden), WIDTH(q))}, \
    [MHA__ATTN_NORM] = {AS(RMS, "layer.0.layer_norm", FIELD(hidden), 0)}

/* The gate is activated, the second matrix multiplies it. Without a gate there is one matrix of another name. */
#define T5_FEED(part)                                                                          \
    [MHA__GATE] = {AS(TABLE, part ".DenseReluDense.wi_0", FIELD(intermediate), FIELD(hidden)), \
                   .only_if = FIELD(gated)},                                                   \
    [MHA__UP] = {AS(TABLE, part ".DenseReluDense.wi", FIELD(intermediate), FIELD(hidden)),     \
                 .other = part ".DenseReluDense.wi_1", .other_if = FIELD(gated)},              \
    [MHA__DOWN] = {AS(TABLE, part ".DenseReluDense.wo", FIELD(hidden), FIELD(intermediate))},  \
    [MHA__MLP_NORM] = {AS(RMS, part ".layer_norm", FIELD(hidden), 0)}

static const mha__part t5_encoder_parts[MHA__ROLES] = {
    T5_OUTER("encoder"),
    T5_ATTENTION,
    T5_FEED("layer.1"),
};

static const mha__part t5_decoder_parts[MHA__ROLES] = {
    T5_OUTER("decoder"),
    [MHA__LM_HEAD] = {AS(TABLE, "lm_head", FIELD(vocab), FIELD(hidden)), .optional = true},
    T5_ATTENTION,
    [MHA__CROSS_QUERY] = {AS(TABLE, "layer.1.EncDecAttention.q", WIDTH(cross), FIELD(hidden))},
    [MHA__CROSS_KEY] = {AS(TABLE, "layer.1.EncDecAttention.k", WIDTH(cross), FIELD(hidden))},
    [MHA__CROSS_VALUE] = {AS(TABLE, "layer.1.EncDecAttention.v", WIDTH(cross), FIELD(hidden))},
    [MHA__CROSS_OUT] = {AS(TABLE, "layer.1.EncDecAttention.o", FIELD(hidden), WIDTH(cross))},
    [MHA__CROSS_NORM] = {AS(RMS, "layer.1.layer_norm", FIELD(hidden), 0)},
    T5_FEED("layer.2"),
};

/* ---- BART, mBART, Marian, Pegasus: LayerNorm with biases everywhere, learned or computed positions ---- */

#define BART_KEYS(vocab_, pad_, start_)                                                        \
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), vocab_, MHA__DIM, NULL},                        \
        {"d_model", MHA__KEY_DIM, FIELD(hidden), 1024, MHA__DIM, NULL},                        \
        {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 1024, MHA__DIM, NULL}, \
        {"pad_token_id", MHA__KEY_ROW, FIELD(padding), pad_, MHA__DIM, NULL},                  \
        {"decoder_start_token_id", MHA__KEY_ROW, FIELD(start), start_, MHA__DIM, NULL},        \
        {"", MHA__KEY_FIXED, FIELD(eps), 1e-5, 0, NULL},                                       \
        {"activation_function", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},         \
        {"scale_embedding", MHA__KEY_BOOL, FIELD(scaled_words), 0, 0, NULL},                   \
        {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},                       \
        {"is_encoder_decoder", MHA__KEY_ONLY_TRUE, 0, 0, 0, NULL}, QUANTIZATION

static const mha__config_key bart_keys[] = {
    BART_KEYS(50265, 1, 2),
    {"", MHA__KEY_BOOL, FIELD(shared_words), 1, 0, NULL},
};
static const mha__config_key mbart_keys[] = {
    BART_KEYS(50265, 1, 0),
    {"", MHA__KEY_BOOL, FIELD(shared_words), 1, 0, NULL},
};
static const mha__config_key marian_keys[] = {
    BART_KEYS(58101, 58100, 58100),
    {"share_encoder_decoder_embeddings", MHA__KEY_BOOL, FIELD(shared_words), 1, 0, NULL},
    {"decoder_vocab_size", MHA__KEY_DIM_IF, FIELD(decoder_vocab), 0, MHA__DIM, NULL},
};
static const mha__config_key pegasus_keys[] = {
    BART_KEYS(50265, 0, 0),
    {"", MHA__KEY_BOOL, FIELD(shared_words), 1, 0, NULL},
};

static const mha__config_key bart_encoder_keys[] = {
    {"encoder_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"encoder_attention_heads", MHA__KEY_DIM, FIELD(heads), 16, MHA__HEADS, NULL},
    {"encoder_ffn_dim", MHA__KEY_DIM, FIELD(intermediate), 4096, MHA__DIM, NULL},
};
static const mha__config_key bart_decoder_keys[] = {
    {"decoder_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"decoder_attention_heads", MHA__KEY_DIM, FIELD(heads), 16, MHA__HEADS, NULL},
    {"decoder_ffn_dim", MHA__KEY_DIM, FIELD(intermediate), 4096, MHA__DIM, NULL},
};

/* BartModel stores its tensors without the prefix of BartForConditionalGeneration. */
static const char *const bart_prefixes[] = {"model.", "", NULL};

#define BART_WORDS(side)                                                                             \
    [MHA__WORDS] = {AS(TABLE, "shared", FIELD(vocab), FIELD(hidden)), .other = side ".embed_tokens", \
                    .other_if = FIELD(own_words)}

#define BART_POSITIONS(side) \
    [MHA__POSITIONS] = {AS(TABLE, side ".embed_positions", FIELD(position_rows), FIELD(hidden))}
#define BART_EMBED_NORM(side) [MHA__EMBED_NORM] = {AS(NORM, side ".layernorm_embedding", FIELD(hidden), 0)}
#define BART_FINAL_NORM(side) [MHA__FINAL_NORM] = {AS(NORM, side ".layer_norm", FIELD(hidden), 0)}

#define BART_HEAD                                                                                                     \
    [MHA__LM_BIAS] = {AS(BUFFER, "/final_logits_bias", FIELD(vocab), 0), .optional = true}, [MHA__LM_HEAD] = {        \
                                                                                                AS(TABLE, "/lm_head", \
                                                                                                   FIELD(vocab),      \
                                                                                                   FIELD(hidden)),    \
                                                                                                .optional = true}

static const mha__part bart_encoder_parts[MHA__ROLES] = {BART_WORDS("encoder"), BART_POSITIONS("encoder"),
                                                         BART_EMBED_NORM("encoder"), BART_LAYER(LINEAR)};
static const mha__part bart_decoder_parts[MHA__ROLES] = {BART_WORDS("decoder"),      BART_POSITIONS("decoder"),
                                                         BART_EMBED_NORM("decoder"), BART_HEAD,
                                                         BART_LAYER(LINEAR),         BART_CROSS(LINEAR)};
static const mha__part mbart_encoder_parts[MHA__ROLES] = {BART_WORDS("encoder"), BART_POSITIONS("encoder"),
                                                          BART_EMBED_NORM("encoder"), BART_FINAL_NORM("encoder"),
                                                          BART_LAYER(LINEAR)};
static const mha__part mbart_decoder_parts[MHA__ROLES] = {
    BART_WORDS("decoder"), BART_POSITIONS("decoder"), BART_EMBED_NORM("decoder"), BART_FINAL_NORM("decoder"), BART_HEAD,
    BART_LAYER(LINEAR),    BART_CROSS(LINEAR)};
static const mha__part marian_encoder_parts[MHA__ROLES] = {BART_WORDS("encoder"), BART_LAYER(LINEAR)};
static const mha__part marian_decoder_parts[MHA__ROLES] = {BART_WORDS("decoder"), BART_HEAD, BART_LAYER(LINEAR),
                                                           BART_CROSS(LINEAR)};

static const mha__part pegasus_encoder_parts[MHA__ROLES] = {BART_WORDS("encoder"), BART_FINAL_NORM("encoder"),
                                                            BART_LAYER(LINEAR)};
static const mha__part pegasus_decoder_parts[MHA__ROLES] = {BART_WORDS("decoder"), BART_FINAL_NORM("decoder"),
                                                            BART_HEAD, BART_LAYER(LINEAR), BART_CROSS(LINEAR)};

/* ---- list of families ---- */

#define COMMON(array) .common = array, .common_count = COUNT(array)
#define T5_SIDE .prefixes = plain_prefixes, .pre_norm = true, .one_side = true, .heads_key = "num_heads", .eos = 1
#define T5_ENCODER T5_SIDE, .layer = "encoder.block.", .parts = t5_encoder_parts
#define T5_DECODER T5_SIDE, .layer = "decoder.block.", .parts = t5_decoder_parts, .causal = true
#define BART_SIDE .prefixes = bart_prefixes, .one_side = true
#define BART_ENCODER KEYS(bart_encoder_keys), .layer = "encoder.layers."
#define BART_DECODER KEYS(bart_decoder_keys), .layer = "decoder.layers.", .causal = true

static const mha__family encoders[] = {
    {.name = "t5", T5_ENCODER, COMMON(t5_keys)},
    {.name = "bart",
     COMMON(bart_keys),
     BART_SIDE,
     BART_ENCODER,
     .parts = bart_encoder_parts,
     .position_rule = MHA__POSITIONS_FROM_2},
    {.name = "mbart",
     COMMON(mbart_keys),
     BART_SIDE,
     BART_ENCODER,
     .parts = mbart_encoder_parts,
     .pre_norm = true,
     .position_rule = MHA__POSITIONS_FROM_2},
    {.name = "marian", COMMON(marian_keys), BART_SIDE, BART_ENCODER, .parts = marian_encoder_parts, .sines = true},
    {.name = "mt5", T5_ENCODER, COMMON(mt5_keys)},
    {.name = "pegasus",
     COMMON(pegasus_keys),
     BART_SIDE,
     BART_ENCODER,
     .parts = pegasus_encoder_parts,
     .pre_norm = true,
     .sines = true},
};

static const mha__family families[] = {
    {.name = "t5", T5_DECODER, COMMON(t5_keys), KEYS(t5_decoder_keys), .encoder = &encoders[0]},
    {.name = "mt5", T5_DECODER, COMMON(mt5_keys), KEYS(mt5_decoder_keys), .encoder = &encoders[4]},
    {.name = "bart",
     COMMON(bart_keys),
     BART_SIDE,
     BART_DECODER,
     .parts = bart_decoder_parts,
     .eos = 2,
     .position_rule = MHA__POSITIONS_FROM_2,
     .encoder = &encoders[1]},
    {.name = "mbart",
     COMMON(mbart_keys),
     BART_SIDE,
     BART_DECODER,
     .parts = mbart_decoder_parts,
     .code_first = true,
     .pre_norm = true,
     .eos = 2,
     .position_rule = MHA__POSITIONS_FROM_2,
     .encoder = &encoders[2]},
    {.name = "marian",
     COMMON(marian_keys),
     BART_SIDE,
     BART_DECODER,
     .parts = marian_decoder_parts,
     .sines = true,
     .eos_first = true,
     .encoder = &encoders[3]},
    {.name = "pegasus",
     COMMON(pegasus_keys),
     BART_SIDE,
     BART_DECODER,
     .parts = pegasus_decoder_parts,
     .pre_norm = true,
     .sines = true,
     .eos = 1,
     .encoder = &encoders[5]},
};

const mha__family_list mha__families_seq2seq = {families, COUNT(families)};

/* family_whisper.c - Whisper: an encoder that reads log-mel features through two convolutions, and a decoder of text.
 * Both have pre-norm with LayerNorm, and no bias in the projection of keys. */
#include "model/config/family_tables.h"

static const mha__config_key common_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 51865, MHA__DIM, NULL},
    {"d_model", MHA__KEY_DIM, FIELD(hidden), 384, MHA__DIM, NULL},
    {"", MHA__KEY_FIXED, FIELD(eps), 1e-5, 0, NULL},
    {"activation_function", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},
    {"is_encoder_decoder", MHA__KEY_ONLY_TRUE, 0, 0, 0, NULL},
    QUANTIZATION,
};
static const mha__config_key encoder_keys[] = {
    {"num_mel_bins", MHA__KEY_DIM, FIELD(mel_bins), 80, 4096, NULL},
    {"max_source_positions", MHA__KEY_DIM, FIELD(max_positions), 1500, MHA__DIM, NULL},
    {"encoder_layers", MHA__KEY_DIM, FIELD(layers), 4, MHA__LAYERS, NULL},
    {"encoder_attention_heads", MHA__KEY_DIM, FIELD(heads), 6, MHA__HEADS, NULL},
    {"encoder_ffn_dim", MHA__KEY_DIM, FIELD(intermediate), 1536, MHA__DIM, NULL},
};
static const mha__config_key decoder_keys[] = {
    {"max_target_positions", MHA__KEY_DIM, FIELD(max_positions), 448, MHA__DIM, NULL},
    {"decoder_layers", MHA__KEY_DIM, FIELD(layers), 4, MHA__LAYERS, NULL},
    {"decoder_attention_heads", MHA__KEY_DIM, FIELD(heads), 6, MHA__HEADS, NULL},
    {"decoder_ffn_dim", MHA__KEY_DIM, FIELD(intermediate), 1536, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 50256, MHA__DIM, NULL},
    {"decoder_start_token_id", MHA__KEY_ROW, FIELD(start), 50257, MHA__DIM, NULL},
    {"median_filter_width", MHA__KEY_DIM, FIELD(median_width), 7, MHA__DIM, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
};

/* WhisperModel stores its tensors without the prefix of WhisperForConditionalGeneration. */
static const char *const prefixes[] = {"model.", "", NULL};

/* The positions of the encoder are sinusoids that the file stores and transformers does not train. */
static const mha__part encoder_parts[MHA__ROLES] = {
    [MHA__FIRST_CONVOLUTION] = {AS(CONVOLUTION, "encoder.conv1", FIELD(hidden), FIELD(mel_bins))},
    [MHA__SECOND_CONVOLUTION] = {AS(CONVOLUTION, "encoder.conv2", FIELD(hidden), FIELD(hidden))},
    [MHA__POSITIONS] = {AS(TABLE, "encoder.embed_positions", FIELD(position_rows), FIELD(hidden)), .frozen = true},
    [MHA__FINAL_NORM] = {AS(NORM, "encoder.layer_norm", FIELD(hidden), 0)},
    BART_LAYER(TABLE),
};

static const mha__part decoder_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "decoder.embed_tokens", FIELD(vocab), FIELD(hidden))},
    [MHA__POSITIONS] = {AS(TABLE, "decoder.embed_positions", FIELD(position_rows), FIELD(hidden))},
    [MHA__FINAL_NORM] = {AS(NORM, "decoder.layer_norm", FIELD(hidden), 0)},
    [MHA__LM_HEAD] = {AS(TABLE, "/proj_out", FIELD(vocab), FIELD(hidden)), .optional = true},
    BART_LAYER(TABLE),
    BART_CROSS(TABLE),
};

#define SIDE                                                                                            \
    .name = "whisper", .common = common_keys, .common_count = COUNT(common_keys), .prefixes = prefixes, \
    .pre_norm = true, .one_side = true

static const mha__family encoder = {SIDE, KEYS(encoder_keys), .layer = "encoder.layers.", .parts = encoder_parts};
static const mha__family families[] = {
    {SIDE, KEYS(decoder_keys), .layer = "decoder.layers.", .parts = decoder_parts, .causal = true, .eos = 50256,
     .encoder = &encoder},
};

const mha__family_list mha__families_whisper = {families, COUNT(families)};

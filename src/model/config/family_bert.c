/* family_bert.c - encoders derived from BERT: post-norm, learned positions. */
#include "model/config/family_tables.h"

/* ---- BERT: post-norm encoder, learned positions, token types ---- */

static const mha__config_key bert_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 30522, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 768, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 12, MHA__HEADS, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 3072, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 512, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 0, MHA__DIM, NULL},
    {"type_vocab_size", MHA__KEY_DIM, FIELD(type_vocab), 2, MHA__DIM, NULL},
    {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-12, 0, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    {"position_embedding_type", MHA__KEY_ONLY_TEXT, 0, 0, 0, "absolute"},
    {"is_decoder", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"add_cross_attention", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"pruned_heads", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    QUANTIZATION,
};

static const char *const bert_prefixes[] = {"", "bert.", NULL};

/* The parts before the first layer, and the pooler. */
#define BERT_EMBEDDINGS                                                                                    \
    [MHA__WORDS] = {AS(TABLE, "embeddings.word_embeddings", FIELD(vocab), FIELD(hidden))},                 \
    [MHA__POSITIONS] = {AS(TABLE, "embeddings.position_embeddings", FIELD(position_rows), FIELD(hidden))}, \
    [MHA__TYPES] = {AS(TABLE, "embeddings.token_type_embeddings", FIELD(type_vocab), FIELD(hidden))},      \
    [MHA__EMBED_NORM] = {AS(NORM, "embeddings.LayerNorm", FIELD(hidden), 0)},                              \
    [MHA__POOLER] = {AS(LINEAR, "pooler.dense", FIELD(hidden), FIELD(hidden)), .optional = true}

/* The parts of a layer. */
#define BERT_LAYER                                                                                               \
    [MHA__QUERY] = {AS(LINEAR, "attention.self.query", WIDTH(q), FIELD(hidden))},                                \
    [MHA__KEY] = {AS(LINEAR, "attention.self.key", WIDTH(k), FIELD(hidden))},                                    \
    [MHA__VALUE] = {AS(LINEAR, "attention.self.value", WIDTH(v), FIELD(hidden))},                                \
    [MHA__QUERY_NORM] = {AS(RMS, "attention.self.q_norm", FIELD(head_dim), 0)},                                  \
    [MHA__KEY_NORM] = {AS(RMS, "attention.self.k_norm", FIELD(head_dim), 0)},                                    \
    [MHA__HEAD_CHOICE] = {AS(LINEAR, "attention.self.head_choice", WIDTH(scores), WIDTH(scored))},               \
    [MHA__HEAD_CHOICE_HIDDEN] = {AS(LINEAR, "attention.self.head_choice_hidden", WIDTH(scored), FIELD(hidden))}, \
    [MHA__ATTN_OUT] = {AS(LINEAR, "attention.output.dense", FIELD(hidden), WIDTH(q))},                           \
    [MHA__ATTN_NORM] = {AS(NORM, "attention.output.LayerNorm", FIELD(hidden), 0)},                               \
    [MHA__UP] = {AS(LINEAR, "intermediate.dense", FIELD(intermediate), FIELD(hidden))},                          \
    [MHA__DOWN] = {AS(LINEAR, "output.dense", FIELD(hidden), FIELD(intermediate))},                              \
    [MHA__MLP_NORM] = {AS(NORM, "output.LayerNorm", FIELD(hidden), 0)}

static const mha__part bert_parts[MHA__ROLES] = {
    BERT_EMBEDDINGS,
    [MHA__LM_DENSE] = {AS(LINEAR, "/cls.predictions.transform.dense", FIELD(hidden), FIELD(hidden)), .optional = true},
    [MHA__LM_NORM] = {AS(NORM, "/cls.predictions.transform.LayerNorm", FIELD(hidden), 0), .optional = true},
    [MHA__LM_BIAS] = {AS(VECTOR, "/cls.predictions.decoder.bias", FIELD(vocab), 0), .optional = true},
    [MHA__LM_TIED_BIAS] = {AS(VECTOR, "/cls.predictions.bias", FIELD(vocab), 0), .optional = true},
    [MHA__LM_HEAD] = {AS(TABLE, "/cls.predictions.decoder", FIELD(vocab), FIELD(hidden)), .optional = true},
    BERT_LAYER,
};

/* ---- RoBERTa, CamemBERT and XLM-RoBERTa: BERT with positions counted from the padding token ---- */

static const mha__config_key roberta_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 50265, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 768, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 12, MHA__HEADS, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 3072, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 512, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 1, MHA__DIM, NULL},
    {"type_vocab_size", MHA__KEY_DIM, FIELD(type_vocab), 2, MHA__DIM, NULL},
    {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-12, 0, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    {"position_embedding_type", MHA__KEY_ONLY_TEXT, 0, 0, 0, "absolute"},
    {"is_decoder", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"add_cross_attention", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"pruned_heads", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    QUANTIZATION,
};

static const char *const roberta_prefixes[] = {"", "roberta.", NULL};

/* The parts of the output head. */
#define ROBERTA_HEAD                                                                                  \
    [MHA__LM_DENSE] = {AS(LINEAR, "/lm_head.dense", FIELD(hidden), FIELD(hidden)), .optional = true}, \
    [MHA__LM_NORM] = {AS(NORM, "/lm_head.layer_norm", FIELD(hidden), 0), .optional = true},           \
    [MHA__LM_BIAS] = {AS(VECTOR, "/lm_head.decoder.bias", FIELD(vocab), 0), .optional = true},        \
    [MHA__LM_TIED_BIAS] = {AS(VECTOR, "/lm_head.bias", FIELD(vocab), 0), .optional = true},           \
    [MHA__LM_HEAD] = {AS(TABLE, "/lm_head.decoder", FIELD(vocab), FIELD(hidden)), .optional = true}

static const mha__part roberta_parts[MHA__ROLES] = {
    BERT_EMBEDDINGS,
    ROBERTA_HEAD,
    BERT_LAYER,
};

/* ---- ELECTRA and ALBERT: embeddings and output head with a separate width ---- */

/* Keys of both families; the tables of each follow, with their own defaults. */
static const mha__config_key narrow_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 30522, MHA__DIM, NULL},
    {"embedding_size", MHA__KEY_DIM, FIELD(embed_width), 128, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 512, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 0, MHA__DIM, NULL},
    {"type_vocab_size", MHA__KEY_DIM, FIELD(type_vocab), 2, MHA__DIM, NULL},
    {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-12, 0, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    {"position_embedding_type", MHA__KEY_ONLY_TEXT, 0, 0, 0, "absolute"},
    {"is_decoder", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"add_cross_attention", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"pruned_heads", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    QUANTIZATION,
};

static const mha__config_key electra_keys[] = {
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 256, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 4, MHA__HEADS, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 1024, MHA__DIM, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},
};

static const mha__config_key albert_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 30000, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 4096, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"num_hidden_groups", MHA__KEY_DIM, FIELD(layer_groups), 1, MHA__LAYERS, NULL},
    {"inner_group_num", MHA__KEY_DIM, FIELD(group_layers), 1, MHA__DIM, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 64, MHA__HEADS, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 16384, MHA__DIM, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu_new"},
};

static const char *const electra_prefixes[] = {"", "electra.", NULL};
static const char *const albert_prefixes[] = {"", "albert.", NULL};

#define NARROW_EMBEDDINGS                                                                                       \
    [MHA__WORDS] = {AS(TABLE, "embeddings.word_embeddings", FIELD(vocab), FIELD(embed_width))},                 \
    [MHA__POSITIONS] = {AS(TABLE, "embeddings.position_embeddings", FIELD(position_rows), FIELD(embed_width))}, \
    [MHA__TYPES] = {AS(TABLE, "embeddings.token_type_embeddings", FIELD(type_vocab), FIELD(embed_width))},      \
    [MHA__EMBED_NORM] = {AS(NORM, "embeddings.LayerNorm", FIELD(embed_width), 0)}

/* The head of the generator or, with its other names, of the discriminator. */
#define OTHER(name_) .other = name_, .other_if = FIELD(discriminator)

static const mha__part electra_parts[MHA__ROLES] = {
    NARROW_EMBEDDINGS,
    [MHA__EMBED_MAP] = {AS(LINEAR, "embeddings_project", FIELD(hidden), FIELD(embed_width)),
                        .only_if = FIELD(embed_mapped)},
    [MHA__LM_DENSE] = {AS(LINEAR, "/generator_predictions.dense", FIELD(head_width), FIELD(hidden)),
                       OTHER("/discriminator_predictions.dense"), .optional = true},
    [MHA__LM_NORM] = {AS(NORM, "/generator_predictions.LayerNorm", FIELD(embed_width), 0),
                      .only_if = FIELD(head_normed), .optional = true},
    [MHA__LM_BIAS] = {AS(VECTOR, "/generator_lm_head.bias", FIELD(logit_width), 0),
                      OTHER("/discriminator_predictions.dense_prediction.bias"), .optional = true},
    [MHA__LM_TIED_BIAS] = {AS(VECTOR, "/generator_lm_head.bias", FIELD(vocab), 0), .optional = true},
    [MHA__LM_HEAD] = {AS(TABLE, "/generator_lm_head", FIELD(logit_width), FIELD(head_width)),
                      OTHER("/discriminator_predictions.dense_prediction"), .optional = true},
    BERT_LAYER,
};

#define ALBERT(name) "albert_layers.0." name

static const mha__part albert_parts[MHA__ROLES] = {
    NARROW_EMBEDDINGS,
    [MHA__EMBED_MAP] = {AS(LINEAR, "encoder.embedding_hidden_mapping_in", FIELD(hidden), FIELD(embed_width))},
    [MHA__POOLER] = {AS(LINEAR, "pooler", FIELD(hidden), FIELD(hidden)), .optional = true},
    [MHA__LM_DENSE] = {AS(LINEAR, "/predictions.dense", FIELD(embed_width), FIELD(hidden)), .optional = true},
    [MHA__LM_NORM] = {AS(NORM, "/predictions.LayerNorm", FIELD(embed_width), 0), .optional = true},
    [MHA__LM_BIAS] = {AS(VECTOR, "/predictions.decoder.bias", FIELD(vocab), 0), .optional = true},
    [MHA__LM_TIED_BIAS] = {AS(VECTOR, "/predictions.bias", FIELD(vocab), 0), .optional = true},
    [MHA__LM_HEAD] = {AS(TABLE, "/predictions.decoder", FIELD(vocab), FIELD(embed_width)), .optional = true},
    [MHA__QUERY] = {AS(LINEAR, ALBERT("attention.query"), WIDTH(q), FIELD(hidden))},
    [MHA__KEY] = {AS(LINEAR, ALBERT("attention.key"), WIDTH(k), FIELD(hidden))},
    [MHA__VALUE] = {AS(LINEAR, ALBERT("attention.value"), WIDTH(v), FIELD(hidden))},
    [MHA__ATTN_OUT] = {AS(LINEAR, ALBERT("attention.dense"), FIELD(hidden), WIDTH(q))},
    [MHA__ATTN_NORM] = {AS(NORM, ALBERT("attention.LayerNorm"), FIELD(hidden), 0)},
    [MHA__UP] = {AS(LINEAR, ALBERT("ffn"), FIELD(intermediate), FIELD(hidden))},
    [MHA__DOWN] = {AS(LINEAR, ALBERT("ffn_output"), FIELD(hidden), FIELD(intermediate))},
    [MHA__MLP_NORM] = {AS(NORM, ALBERT("full_layer_layer_norm"), FIELD(hidden), 0)},
};

/* ---- DistilBERT: BERT without token types and pooler ---- */

static const mha__config_key distilbert_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 30522, MHA__DIM, NULL},
    {"dim", MHA__KEY_DIM, FIELD(hidden), 768, MHA__DIM, NULL},
    {"n_layers", MHA__KEY_DIM, FIELD(layers), 6, MHA__LAYERS, NULL},
    {"n_heads", MHA__KEY_DIM, FIELD(heads), 12, MHA__HEADS, NULL},
    {"hidden_dim", MHA__KEY_DIM, FIELD(intermediate), 3072, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 512, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 0, MHA__DIM, NULL},
    {"", MHA__KEY_FIXED, FIELD(eps), 1e-12, 0, NULL},
    {"activation", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    {"pruned_heads", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    QUANTIZATION,
};

/* Alternative names of the keys above; transformers accepts both names. */
static const char *const distilbert_aliases[][2] = {
    {"dim", "hidden_size"},
    {"n_layers", "num_hidden_layers"},
    {"n_heads", "num_attention_heads"},
    {NULL, NULL},
};

static const char *const distilbert_prefixes[] = {"", "distilbert.", NULL};

static const mha__part distilbert_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "embeddings.word_embeddings", FIELD(vocab), FIELD(hidden))},
    [MHA__POSITIONS] = {AS(TABLE, "embeddings.position_embeddings", FIELD(position_rows), FIELD(hidden))},
    [MHA__EMBED_NORM] = {AS(NORM, "embeddings.LayerNorm", FIELD(hidden), 0)},
    [MHA__LM_DENSE] = {AS(LINEAR, "/vocab_transform", FIELD(hidden), FIELD(hidden)), .optional = true},
    [MHA__LM_NORM] = {AS(NORM, "/vocab_layer_norm", FIELD(hidden), 0), .optional = true},
    [MHA__LM_BIAS] = {AS(VECTOR, "/vocab_projector.bias", FIELD(vocab), 0), .optional = true},
    [MHA__LM_TIED_BIAS] = {AS(VECTOR, "/vocab_projector.bias", FIELD(vocab), 0), .optional = true},
    [MHA__LM_HEAD] = {AS(TABLE, "/vocab_projector", FIELD(vocab), FIELD(hidden)), .optional = true},
    [MHA__QUERY] = {AS(LINEAR, "attention.q_lin", WIDTH(q), FIELD(hidden))},
    [MHA__KEY] = {AS(LINEAR, "attention.k_lin", WIDTH(k), FIELD(hidden))},
    [MHA__VALUE] = {AS(LINEAR, "attention.v_lin", WIDTH(v), FIELD(hidden))},
    [MHA__QUERY_NORM] = {AS(RMS, "attention.q_norm", FIELD(head_dim), 0)},
    [MHA__KEY_NORM] = {AS(RMS, "attention.k_norm", FIELD(head_dim), 0)},
    [MHA__HEAD_CHOICE] = {AS(LINEAR, "attention.head_choice", WIDTH(scores), WIDTH(scored))},
    [MHA__HEAD_CHOICE_HIDDEN] = {AS(LINEAR, "attention.head_choice_hidden", WIDTH(scored), FIELD(hidden))},
    [MHA__ATTN_OUT] = {AS(LINEAR, "attention.out_lin", FIELD(hidden), WIDTH(q))},
    [MHA__ATTN_NORM] = {AS(NORM, "sa_layer_norm", FIELD(hidden), 0)},
    [MHA__UP] = {AS(LINEAR, "ffn.lin1", FIELD(intermediate), FIELD(hidden))},
    [MHA__DOWN] = {AS(LINEAR, "ffn.lin2", FIELD(hidden), FIELD(intermediate))},
    [MHA__MLP_NORM] = {AS(NORM, "output_layer_norm", FIELD(hidden), 0)},
};

/* ---- MPNet: RoBERTa without token types, with biases by relative position ---- */

static const mha__config_key mpnet_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 30527, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 768, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 12, MHA__HEADS, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 3072, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 512, MHA__DIM, NULL},
    {"relative_attention_num_buckets", MHA__KEY_DIM, FIELD(buckets), 32, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 1, MHA__DIM, NULL},
    {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-12, 0, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    {"pruned_heads", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    QUANTIZATION,
};

static const char *const mpnet_prefixes[] = {"", "mpnet.", NULL};

static const mha__part mpnet_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "embeddings.word_embeddings", FIELD(vocab), FIELD(hidden))},
    [MHA__POSITIONS] = {AS(TABLE, "embeddings.position_embeddings", FIELD(position_rows), FIELD(hidden))},
    [MHA__EMBED_NORM] = {AS(NORM, "embeddings.LayerNorm", FIELD(hidden), 0)},
    [MHA__RELATIVE] = {AS(TABLE, "encoder.relative_attention_bias", FIELD(buckets), FIELD(relative_heads))},
    [MHA__POOLER] = {AS(LINEAR, "pooler.dense", FIELD(hidden), FIELD(hidden)), .optional = true},
    ROBERTA_HEAD,
    [MHA__QUERY] = {AS(LINEAR, "attention.attn.q", WIDTH(q), FIELD(hidden))},
    [MHA__KEY] = {AS(LINEAR, "attention.attn.k", WIDTH(k), FIELD(hidden))},
    [MHA__VALUE] = {AS(LINEAR, "attention.attn.v", WIDTH(v), FIELD(hidden))},
    [MHA__QUERY_NORM] = {AS(RMS, "attention.attn.q_norm", FIELD(head_dim), 0)},
    [MHA__KEY_NORM] = {AS(RMS, "attention.attn.k_norm", FIELD(head_dim), 0)},
    [MHA__ATTN_OUT] = {AS(LINEAR, "attention.attn.o", FIELD(hidden), WIDTH(q))},
    [MHA__ATTN_NORM] = {AS(NORM, "attention.LayerNorm", FIELD(hidden), 0)},
    [MHA__UP] = {AS(LINEAR, "intermediate.dense", FIELD(intermediate), FIELD(hidden))},
    [MHA__DOWN] = {AS(LINEAR, "output.dense", FIELD(hidden), FIELD(intermediate))},
    [MHA__MLP_NORM] = {AS(NORM, "output.LayerNorm", FIELD(hidden), 0)},
};

/* ---- list of families ---- */

#define ROBERTA_LIKE                                                                                     \
    KEYS(roberta_keys), .prefixes = roberta_prefixes, .layer = "encoder.layer.", .parts = roberta_parts, \
                        .exact_head = true, .position_rule = MHA__POSITIONS_AFTER_PAD

#define NARROW_LIKE .common = narrow_keys, .common_count = COUNT(narrow_keys)

static const mha__family families[] = {
    {.name = "bert", KEYS(bert_keys), .prefixes = bert_prefixes, .layer = "encoder.layer.", .parts = bert_parts},
    {.name = "roberta", ROBERTA_LIKE},
    {.name = "camembert", ROBERTA_LIKE},
    {.name = "xlm-roberta", ROBERTA_LIKE},
    {.name = "mpnet",
     KEYS(mpnet_keys),
     .prefixes = mpnet_prefixes,
     .layer = "encoder.layer.",
     .parts = mpnet_parts,
     .exact_head = true,
     .padding = 1,
     .position_rule = MHA__POSITIONS_AFTER_PAD},
    {.name = "distilbert",
     KEYS(distilbert_keys),
     .aliases = distilbert_aliases,
     .prefixes = distilbert_prefixes,
     .layer = "transformer.layer.",
     .parts = distilbert_parts},
    {.name = "electra",
     NARROW_LIKE,
     KEYS(electra_keys),
     .prefixes = electra_prefixes,
     .layer = "encoder.layer.",
     .parts = electra_parts,
     .discriminator = "ElectraForPreTraining",
     .exact_head = true},
    {.name = "albert",
     NARROW_LIKE,
     KEYS(albert_keys),
     .prefixes = albert_prefixes,
     .layer = "encoder.albert_layer_groups.",
     .parts = albert_parts,
     .always_mapped = true},
};

const mha__family_list mha__families_bert = {families, COUNT(families)};

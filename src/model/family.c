/* family.c - the families of checkpoints: one table each.
 *
 * To add a family: its keys, its parts, a row in `families`. Defaults are those of transformers for a missing key.
 * Tensors that no table names are ignored: heads for training (cls.*), and buffers such as embeddings.position_ids.
 */
#include "model/family.h"
#include "io/limits.h"
#include <stdio.h>
#include <string.h>

#define FIELD(name) offsetof(mha__config, name)
#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

/* ---- BERT: post-norm encoder, learned positions, token types ---- */

static const mha__config_key bert_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 30522, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 768, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 12, MHA__HEADS, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 3072, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 512, MHA__DIM, NULL},
    {"type_vocab_size", MHA__KEY_DIM, FIELD(type_vocab), 2, MHA__DIM, NULL},
    {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-12, 0, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},
    {"position_embedding_type", MHA__KEY_ONLY_TEXT, 0, 0, 0, "absolute"},
    {"is_decoder", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"add_cross_attention", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"quantization_config", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    {"pruned_heads", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
};

static const char *const bert_prefixes[] = {"", "bert.", NULL};

static const mha__part bert_parts[MHA__ROLES] = {
    [MHA__WORDS] = {"embeddings.word_embeddings", MHA__PART_TABLE, FIELD(vocab), FIELD(hidden), false},
    [MHA__POSITIONS] = {"embeddings.position_embeddings", MHA__PART_TABLE, FIELD(max_positions), FIELD(hidden), false},
    [MHA__TYPES] = {"embeddings.token_type_embeddings", MHA__PART_TABLE, FIELD(type_vocab), FIELD(hidden), false},
    [MHA__EMBED_NORM] = {"embeddings.LayerNorm", MHA__PART_NORM, FIELD(hidden), 0, false},
    [MHA__POOLER] = {"pooler.dense", MHA__PART_LINEAR, FIELD(hidden), FIELD(hidden), true},
    [MHA__QUERY] = {"attention.self.query", MHA__PART_LINEAR, FIELD(q_width), FIELD(hidden), false},
    [MHA__KEY] = {"attention.self.key", MHA__PART_LINEAR, FIELD(kv_width), FIELD(hidden), false},
    [MHA__VALUE] = {"attention.self.value", MHA__PART_LINEAR, FIELD(kv_width), FIELD(hidden), false},
    [MHA__ATTN_OUT] = {"attention.output.dense", MHA__PART_LINEAR, FIELD(hidden), FIELD(q_width), false},
    [MHA__ATTN_NORM] = {"attention.output.LayerNorm", MHA__PART_NORM, FIELD(hidden), 0, false},
    [MHA__UP] = {"intermediate.dense", MHA__PART_LINEAR, FIELD(intermediate), FIELD(hidden), false},
    [MHA__DOWN] = {"output.dense", MHA__PART_LINEAR, FIELD(hidden), FIELD(intermediate), false},
    [MHA__MLP_NORM] = {"output.LayerNorm", MHA__PART_NORM, FIELD(hidden), 0, false},
};

/* ---- all of them ---- */

static const mha__family families[] = {
    {.name = "bert",
     .keys = bert_keys,
     .key_count = COUNT(bert_keys),
     .prefixes = bert_prefixes,
     .layer = "encoder.layer.",
     .parts = bert_parts},
};

const mha__family *mha__family_find(const char *model_type)
{
    for (int i = 0; i < COUNT(families); i++)
        if (strcmp(families[i].name, model_type) == 0) return &families[i];
    return NULL;
}

void mha__family_names(char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < COUNT(families) && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i ? ", " : "", families[i].name);
}

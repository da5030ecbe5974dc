/* family.h - describes a model family by tables of config keys and tensor names. */
#ifndef MHA_MODEL_CONFIG_FAMILY_H
#define MHA_MODEL_CONFIG_FAMILY_H

#include "model/config/config.h"
#include <stdbool.h>

/* The parts of a model. The first group exists once per model, the second in each layer. */
typedef enum mha__role {
    MHA__WORDS,
    MHA__FIRST_CONVOLUTION, /* instead of word embeddings, in encoders that read audio features (Whisper) */
    MHA__SECOND_CONVOLUTION,
    MHA__POSITIONS,
    MHA__TYPES,
    MHA__PATCHES,     /* projection of the patches of an image */
    MHA__CLASS_TOKEN, /* the token before the patches */
    MHA__EMBED_NORM,
    MHA__EMBED_MAP, /* linear map from the embeddings to the hidden states */
    MHA__RELATIVE,  /* relative position biases, added to the scores */
    MHA__DISTANCES, /* embeddings of relative positions, projected in each layer (DeBERTa), and their norm */
    MHA__DISTANCES_NORM,
    MHA__LAYER_CONVOLUTION, /* convolution parallel to the first layer (DeBERTa), and the norm of their sum */
    MHA__LAYER_CONVOLUTION_NORM,
    MHA__POOLER,
    MHA__POOL_NORM, /* CLIP: norm of the class token, projection of the pooled vector, logarithm of the logits' scale */
    MHA__PROJECTION,
    MHA__LOGIT_SCALE,
    MHA__FINAL_NORM,
    MHA__LM_DENSE, /* BERT: dense layer and norm before the output matrix */
    MHA__LM_NORM,
    MHA__LM_BIAS,
    MHA__LM_TIED_BIAS, /* alternative name if both biases are one parameter */
    MHA__LM_HEAD,
    MHA__QUERY,
    MHA__KEY,
    MHA__VALUE,
    MHA__QKV,      /* q, k and v in one tensor, instead of three */
    MHA__Q_LATENT, /* latent attention (DeepSeek-V3): maps to the vectors of q and of k and v, their norms, and the map
                    * to k and v; QUERY maps the vector to q */
    MHA__Q_LATENT_NORM,
    MHA__KV_LATENT,
    MHA__KV_LATENT_NORM,
    MHA__KV_EXPAND,
    MHA__POS_KEY, /* projections of the embeddings of relative positions */
    MHA__POS_QUERY,
    MHA__SINKS, /* [heads] logits that are only in the denominator of the softmax */
    MHA__QUERY_NORM,
    MHA__KEY_NORM,
    MHA__HEAD_CHOICE,        /* linear map to the scores of heads, in layers that select heads */
    MHA__HEAD_CHOICE_HIDDEN, /* hidden layer before the scores, with MHA_CHOICE_OPTIONS */
    MHA__ATTN_OUT,
    MHA__ATTN_NORM,
    MHA__ATTN_OUT_NORM,
    MHA__CROSS_QUERY, /* cross-attention, in the decoder of an encoder-decoder */
    MHA__CROSS_KEY,
    MHA__CROSS_VALUE,
    MHA__CROSS_OUT,
    MHA__CROSS_NORM,
    MHA__GATE,
    MHA__GATE_UP, /* gate and up in one tensor, in this order, instead of two */
    MHA__UP,
    MHA__DOWN,
    MHA__SHARED_GATE, /* layers with experts: the feed-forward of all tokens, instead of gate, up and down */
    MHA__SHARED_UP,
    MHA__SHARED_DOWN,
    MHA__SHARED_SHARE, /* linear map to its factor, before the sigmoid */
    MHA__ROUTER,       /* linear map to the scores of experts */
    MHA__ROUTER_BIAS,  /* added to the scores for the choice; not trained by gradients */
    MHA__EXPERT_GATE,  /* of each expert; in names, '*' is the number of the expert */
    MHA__EXPERT_UP,
    MHA__EXPERT_DOWN,
    MHA__EXPERTS_GATE_UP, /* gate and up of all experts in one tensor, and down, instead of three tensors per expert */
    MHA__EXPERTS_DOWN,
    MHA__MLP_NORM,
    MHA__MLP_OUT_NORM,
    MHA__ROLES,
    MHA__FIRST_OF_LAYER = MHA__QUERY,
    MHA__FIRST_OF_FEED = MHA__GATE
} mha__role;

/* A value of mha__role identifies a part and an expert: expert e has the roles of expert 0 plus e * MHA__ROLES. */
static inline mha__role mha__expert_role(mha__role role, int64_t expert)
{
    return (mha__role)(role + expert * MHA__ROLES);
}

static inline mha__role mha__part_role(mha__role role)
{
    return (mha__role)(role % MHA__ROLES);
}

static inline bool mha__of_experts(mha__role role)
{
    return mha__part_role(role) >= MHA__EXPERT_GATE && mha__part_role(role) <= MHA__EXPERT_DOWN;
}

typedef enum mha__part_kind {
    MHA__PART_ABSENT = 0, /* the family has no such part */
    MHA__PART_TABLE,      /* NAME.weight [rows, columns] */
    MHA__PART_LINEAR,     /* NAME.weight [rows, columns], NAME.bias [rows] */
    MHA__PART_CONV1D,     /* NAME.weight [columns, rows], NAME.bias [rows] */
    MHA__PART_NORM,       /* NAME.weight [rows], NAME.bias [rows]; or NAME.gamma, NAME.beta */
    MHA__PART_NORM_ONLY,  /* LayerNorm without a bias: NAME.weight [rows] */
    MHA__PART_HEAD_NORMS, /* LayerNorm without a bias, with other weights per head: NAME.weight [rows, columns] */
    MHA__PART_RMS,        /* NAME.weight [rows] */
    MHA__PART_RMS_1,      /* NAME.weight [rows], stored as the difference from 1 */
    MHA__PART_VECTOR,     /* NAME [rows] */
    MHA__PART_STACK,      /* of all experts: NAME [experts, columns, rows], NAME_bias [experts, rows] */
    MHA__PART_BUFFER,     /* NAME [1, rows]; a constant without a gradient */
    MHA__PART_CONV2D,     /* NAME.weight [rows, channels, patch_height, patch_width], NAME.bias [rows] */
    MHA__PART_TOKENS,     /* NAME [1, rows, columns] */
    MHA__PART_SCALAR,     /* NAME [] */
    MHA__PART_CONVOLUTION /* NAME.weight [rows, columns, taps], NAME.bias [rows] */
} mha__part_kind;

/* Offset of a field of mha__layer_widths, shifted past the end of mha__config so that both kinds of offset fit one
 * field. */
#define MHA__PART_WIDTH(name) (sizeof(mha__config) + offsetof(mha__layer_widths, name))

typedef struct mha__part {
    const char *name; /* name without prefix, layer and suffix; a leading "/" = no prefix */
    mha__part_kind kind;
    size_t rows, columns; /* offsets of int64_t in mha__config, or MHA__PART_WIDTH per layer */
    const char *other;    /* name if the bool of mha__config at offset `other_if` is true; NULL = always `name` */
    size_t other_if;
    bool optional;
    size_t bias;      /* for PART_LINEAR and PART_CONV2D: offset in mha__config of a bool, true if the part has a bias;
                     * 0 = it always has one */
    size_t taps;      /* for PART_CONVOLUTION: offset of int64_t in mha__config; 0 = MHA__TAPS */
    size_t only_if;   /* offset in mha__config of a bool, true if the model has the part; 0 = every model has it */
    bool not_first;   /* the first layer lacks the part */
    bool alternating; /* EXPERTS_GATE_UP: gate has columns 0, 2, 4 ..., and up has columns 1, 3, 5 ... */
    bool padded;      /* ATTN_OUT: columns of each head are padded with zeros to head_dim */
    bool frozen;      /* a constant, which gets no gradient */
    bool per_head;    /* QKV: rows are q, k and v of the first head, then of the second head, and so on (GPT-NeoX) */
} mha__part;

/* Which layers have a sliding window if layer_types is absent. */
typedef enum mha__window_rule {
    MHA__WINDOW_NONE = 0,
    MHA__WINDOW_ALL,
    MHA__WINDOW_EVEN,        /* layers 0, 2, 4 ... */
    MHA__WINDOW_EVEN_BEFORE, /* even layers below max_window_layers, if use_sliding_window is set */
    MHA__WINDOW_LATER,       /* layers from max_window_layers on, if use_sliding_window is set */
    MHA__WINDOW_UNTURNED,    /* layers without rotation, if use_sliding_window is set */
    MHA__WINDOW_PATTERN,     /* all layers except every window_pattern-th layer */
    MHA__WINDOW_BETWEEN      /* like PATTERN, but layer 0 has no window */
} mha__window_rule;

/* Determines the row of the position table for a token, if the caller passes no positions. */
typedef enum mha__position_rule {
    MHA__POSITIONS_PLAIN = 0, /* index of the token */
    MHA__POSITIONS_AFTER_PAD, /* pad_token_id + the number of tokens up to and including this one that are not padding;
                               * a padding token gets pad_token_id (RoBERTa) */
    MHA__POSITIONS_FROM_2,    /* index of the token + 2 (BART) */
    MHA__POSITIONS_OF_REAL    /* number of real tokens before this one + 2; a masked token gets 1 (OPT) */
} mha__position_rule;

typedef struct mha__family {
    const char *name;                     /* model_type */
    const mha__config_key *common, *keys; /* read in this order, so a family's own defaults take precedence */
    int common_count, key_count;
    const char *const (*aliases)[2]; /* pairs of a key in `keys` and its alternative name, ending with NULL; or NULL */
    const char *const *prefixes;     /* prefixes of tensor names, tried in this order, ending with NULL */
    const char *layer; /* prefix of layers: a tensor of layer n is called PREFIX LAYER n "." NAME; layers that share
                        * tensors have the number of their group instead of n */
    const mha__part *parts; /* [MHA__ROLES] */
    bool pre_norm, causal, rotary;
    bool head_keys;     /* config.json has num_key_value_heads and head_dim */
    bool width_checked; /* transformers reads head_dim, but checks the count of LongRoPE factors and builds the norms of
                         * q and k from hidden size / heads (Phi-3, Phi) */
    bool normed;        /* default of qk_norm in "mha.attention": q and k are normalized per head */
    bool embed_scaled;  /* embeddings are multiplied by sqrt(hidden) */
    bool parallel;      /* attention and feed-forward read the block's input; default of use_parallel_residual */
    bool alibi;
    bool whole_norms;      /* each norm of q and k covers all heads together */
    bool head_gains;       /* the norms of q and k have other weights per head */
    bool always_mapped;    /* the map from embeddings to hidden states also exists if both have the same width */
    bool experts_normed;   /* the weights of the chosen experts are divided by their sum, regardless of the config */
    bool positions_mapped; /* positions are added after the map from embeddings to hidden states (OPT) */
    bool linear_head;      /* the head before the output matrix is a linear map without activation and norm (OPT) */
    const char *discriminator; /* entry of `architectures` for which LM_DENSE and LM_HEAD are those of a discriminator;
                                * NULL = none */
    bool exact_head;           /* the activation before the output matrix is GELU, regardless of hidden_act */
    bool latent;               /* latent attention (DeepSeek-V3) */
    bool sigmoid_router;       /* experts have scores in groups (expert_routing.c) */
    bool distances;            /* keys of DeBERTa define relative positions */
    bool rope_list;            /* no_rope_layers lists the layers that rotate */
    mha__window_rule window_rule;
    mha__position_rule position_rule;
    int64_t padding; /* id that replaces pad_token_id for positions and the padding row (MPNet); 0 = none */
    /* Rotation. interleaved: pairs are adjacent. rotary_part: default of partial_rotary_factor, whose older name is
     * partial_key; 0 = whole heads, and the key is ignored. theta: default of rope_theta, whose older name is
     * theta_key. local_theta: sliding layers have a separate rotation with this default. */
    bool interleaved;
    bool drops_cache; /* generation recomputes cached keys when a longer text changes the frequencies */
    double rotary_part, theta, local_theta;
    bool old_longrope;                    /* the rope types su and yarn are older names of longrope (Phi-3) */
    int64_t original_positions;           /* default of original_max_position_embeddings; 0 = max_position_embeddings */
    const mha_rope_options *default_rope; /* rotation of whole heads without rope_parameters, if it has a scaling */
    const char *partial_key, *theta_key, *local_theta_key;
    int32_t eos;    /* end-of-text token if no file defines one; 0 = none */
    bool eos_first; /* that token is 0 (Marian) */
    /* Encoder-decoders: a table for each side. The table of the decoder has the name of the family and points to the
     * table of the encoder. */
    const struct mha__family *encoder;
    bool one_side; /* the table is one side of an encoder-decoder */
    /* Key of the head count of both sides, if the width of a head does not depend on it (T5); NULL = none */
    const char *heads_key;
    bool code_first; /* the language code at the end of a text is the first token of the decoder (mBART) */
    bool sines;      /* positions are computed, not stored: sines, then cosines (Marian) */
    const struct mha__family *bidirectional; /* table if use_bidirectional_attention is true (Gemma 3); NULL = none */
    /* CLIP: a table for each tower. The table of the text tower has the name of the family and points to the table of
     * the image tower. tower: key of config.json whose object has the keys of this tower, unless the object whose key
     * is tower_dict exists, which replaces it; NULL = the root. top: keys of the root. A family with a tower and
     * without a table of images is the text part of a model of text and images (Gemma 3). */
    const struct mha__family *vision;
    const char *tower, *tower_dict;
    const mha__config_key *top;
    int top_count;
    bool pools;       /* pooled is a token, with POOL_NORM if it exists, and has a projection */
    bool hidden_last; /* the last hidden states that are shown are those before the final norm (ViT, CLIP) */
} mha__family;

/* Returns the row of the position table for position 0 of a caller. */
static inline int32_t mha__first_position(const mha__family *family)
{
    const mha__position_rule rule = family->position_rule;
    return rule == MHA__POSITIONS_FROM_2 || rule == MHA__POSITIONS_OF_REAL ? 2 : 0;
}

/* Returns the entry of a role, of any expert, in the family's table. */
static inline const mha__part *mha__part_of(const mha__config *config, mha__role role)
{
    return &config->family->parts[mha__part_role(role)];
}

/* Returns true if the weights of a part are stored [columns, rows]. */
static inline bool mha__part_transposed(const mha__part *part)
{
    return part->kind == MHA__PART_CONV1D || part->kind == MHA__PART_STACK;
}

/* Returns the table of a family; NULL if `model_type` is not supported. */
const mha__family *mha__family_find(const char *model_type);
/* Writes the names of the supported families, separated by ", ", truncated to `capacity` > 0 bytes. */
void mha__family_names(char *text, size_t capacity);

#endif

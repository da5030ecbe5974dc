/* config.h - the validated content of config.json. Code that uses this header neither reads JSON nor validates
 * dimensions again. */
#ifndef MHA_MODEL_CONFIG_CONFIG_H
#define MHA_MODEL_CONFIG_CONFIG_H

#include "io/input_limits.h"
#include "mha/layer.h"
#include <stdbool.h>
#include <stddef.h>

struct mha__family;

/* Number of rows that MPNet uses of its table of relative positions, and the distance at which the last one begins. */
enum { MHA__MPNET_BUCKETS = 32, MHA__MPNET_DISTANCE = 128 };
enum { MHA__POOL_LARGEST = 2 };                   /* eos_token_id of CLIP's old files, as in transformers */
enum { MHA__EOS = 64 };                           /* maximum number of end-of-text tokens; a longer list is rejected */
enum { MHA__SUPPRESSED = 512, MHA__FORCED = 16 }; /* the same of suppress_tokens, and of forced_decoder_ids */
enum { MHA__ALIGNMENT = 256 };                    /* the same of alignment_heads */

/* How a layer selects heads for each text. */
typedef struct mha__layer_choice {
    mha_choice of;
    mha_selection selection;
    int64_t top_k;                     /* number of experts, with MHA_CHOICE_EXPERTS */
    double prune_ratio;                /* fraction of heads to prune, with MHA_CHOICE_HEADS */
    int64_t options[MHA_HEAD_OPTIONS]; /* with MHA_CHOICE_OPTIONS: [option_count] head counts, and the width of the
                                        * scored vector */
    int64_t option_count, width;
} mha__layer_choice;

/* Attention settings that may differ between layers. */
typedef struct mha__layer_attention {
    int64_t window; /* keys that a query attends to on either side, including its own position; 0 = all */
    double scale;   /* scale of scores; 0 = 1 / sqrt(head_dim) */
    double softcap; /* cap of scores; 0 = off */
    bool turned;    /* q and k are rotated (RoPE) */
    bool local;     /* uses the rotation of sliding layers (local_rope) */
    bool normed;    /* q and k are normalized per head */
    bool alibi;
    mha__layer_choice choice;
} mha__layer_attention;

/* The form in which a checkpoint folder stores weights. */
typedef enum mha__quantization {
    MHA__QUANTIZED_NONE = 0,
    MHA__QUANTIZED_MXFP4, /* experts as codes of 4 bits with scales */
    MHA__QUANTIZED_FP8    /* matrices as 8-bit floats with scales */
} mha__quantization;

/* Every dimension is >= 1 and within its limit (io/input_limits.h); heads divides hidden unless head_dim is given;
 * kv_heads divides heads. */
typedef struct mha__config {
    const struct mha__family *family;
    int64_t vocab, max_positions, type_vocab;
    int64_t mel_bins;       /* encoder that reads audio features: bins of a frame; 0 = the model reads tokens */
    int64_t embed_width;    /* width of the embeddings, and of the input of the output matrix: hidden, or less in
                            * families with a linear map from embeddings to hidden states */
    bool embed_mapped;      /* the model has that linear map */
    int64_t position_width; /* columns of the position table */
    bool positions_late;    /* positions are added after the map from embeddings to hidden states */
    /* Rows and columns of the output matrix: the vocabulary and embed_width or, in a discriminator (ELECTRA), which has
     * one logit per token, 1 and hidden. head_normed: the head has a norm before that matrix */
    int64_t logit_width, head_width;
    bool discriminator, head_normed;
    int64_t layer_groups; /* ALBERT: groups of consecutive layers that share their tensors; 0 = none */
    int64_t group_layers; /* ALBERT: layers in a group's tensors; 1 is the only supported value */
    int64_t buckets;      /* rows of the table of relative positions; 0 = none */
    int64_t used_buckets; /* rows that distances refer to */
    int64_t max_distance; /* distance from which on all distances refer to the last of these rows */
    /* DeBERTa: rows of the embeddings of relative positions per sign, 0 = none; the distances that they stand for;
     * which terms of the scores read them, by which projections */
    int64_t distance_span, distance_rows, distance_buckets, distance_max;
    bool distances, distances_normed, key_positions, query_positions, own_positions, pos_key, pos_query;
    bool biased_input, typed_input, other_head; /* DeBERTa: has the tables of positions, of types; names of the head */
    /* DeBERTa: convolution parallel to the first layer. Its taps, 0 = none; groups of channels, channels of a group */
    int64_t conv_taps, conv_groups, conv_channels;
    bool convolved;
    mha_activation conv_activation;
    int64_t position_rows; /* rows of the position table, >= max_positions */
    /* Models of images: an image [channels, image_height, image_width] and its patches; 0 = the model reads token ids.
     * vocab is then the number of classes. */
    int64_t channels, image_height, image_width, patch_height, patch_width;
    int64_t class_tokens; /* tokens before the patches: 1 */
    int64_t pooled;       /* ViT: width of the pooler's output; 0 = hidden */
    bool patch_bias;
    int64_t projection; /* CLIP: width of the projections of both towers */
    int64_t pool_token; /* CLIP: the token that ends a text and is pooled; MHA__POOL_LARGEST = the largest id */
    int64_t padding;    /* row of the word embeddings that gets no gradient from inputs (nn.Embedding's padding_idx);
                            * -1 or outside the table = none */
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate;
    int64_t original_heads; /* head count of the unpruned model, >= heads; limit of the head numbers in "mha.heads" */
    int32_t layer_heads[MHA__LAYERS], layer_kv_heads[MHA__LAYERS]; /* head counts of each layer; below heads and
                                                                    * kv_heads in pruned layers */
    /* Head counts of k and v in the tensors of a layer; the operator and the cache use their least common multiple,
     * layer_kv_heads. */
    int32_t layer_k_heads[MHA__LAYERS], layer_v_heads[MHA__LAYERS];
    int32_t cross_heads[MHA__LAYERS];   /* heads of the cross-attention, in the decoder of an encoder-decoder */
    int64_t relative_heads;             /* columns of the table of relative positions */
    bool unturned[MHA__LAYERS];         /* layer without rotation, unless "mha.attention" sets it */
    bool attention_only[MHA__LAYERS];   /* layer without feed-forward and its norms */
    int64_t experts, experts_chosen;    /* experts of a layer, and experts per token; 0 = no layer has experts */
    int64_t expert_width, shared_width; /* width of an expert, and of the feed-forward that all tokens use */
    int64_t sparse_step;                /* every n-th layer has experts; 0 = all */
    /* DeepSeek-V3: widths of latent attention (layer/attention/latent.h); q has no latent vector if q_rank is 0.
     * head_dim is the width to which q, k and v are padded */
    int64_t q_rank, kv_rank, nope_width, rope_width, value_width;
    bool q_direct, q_latent, interleaved;
    int64_t shared_experts, dense_layers, expert_groups, kept_groups; /* dense_layers: leading layers without experts */
    double expert_factor;
    double swiglu_alpha, swiglu_limit; /* gpt-oss: clamped SwiGLU of the experts; limit 0 = use `activation` */
    bool experts_normed;               /* the weights of the chosen experts are divided by their sum */
    bool qk_normed;                    /* the family's key enables the norms of q and k in all layers */
    bool qkv_bias;                     /* biases of q, k and v, in families where they are optional */
    bool sparse[MHA__LAYERS];          /* layer with experts */
    bool gated;                        /* feed_forward_proj of T5: feed-forward has a gate */
    double eps;
    mha_activation activation, head_activation; /* activation of feed-forward; activation before the output matrix */
    bool pre_norm, parallel, no_final_norm, final_normed;
    bool attn_bias, mlp_bias;         /* biases of the projections, in families where they are optional */
    bool tied;                        /* the output matrix is the word embeddings */
    bool scaled, inverse_layer_scale; /* GPT-2. scaled: divide scores by sqrt(head_dim). inverse_layer_scale: divide
                                       * scores by layer + 1 */
    double query_scalar;              /* Gemma-2: scores are divided by the square root of this value; 0 = head_dim */
    double softcap, logit_cap;        /* cap of scores (default of layers); cap of logits; 0 = off */
    double attention_multiplier;      /* Granite: scale of scores; 0 = use query_scalar */
    double embed_multiplier, residual_multiplier, logit_divisor, logit_multiplier; /* 0 = the factor is 1 */
    /* Encoder-decoders. scaled_words: word embeddings are multiplied by sqrt(hidden). scaled_head: the input of the
     * output matrix is divided by sqrt(hidden) (T5). own_words: encoder and decoder have word embeddings of their own
     * (Marian), the decoder's with decoder_vocab rows. */
    bool scaled_words, scaled_head, shared_words, own_words;
    int64_t decoder_vocab;
    int64_t start;       /* first token of the decoder; -1 = none */
    int64_t label_start; /* the same when labels are shifted: the value of config.json alone */
    int64_t pad;         /* token of the decoder that has no label, or padding token whose word embedding gets a
                          * gradient (BLOOM, GPT-NeoX); -1 = none */
    int64_t forced_first,
        forced_last; /* generated tokens that are always the first, or the last of max_new; -1 = none */
    int64_t banned_count;
    int32_t *banned; /* [banned_count] words that are never generated: their ids, each word ended by -1 */
    int64_t suppressed_count, late_count;
    int32_t suppressed[MHA__SUPPRESSED]; /* [suppressed_count] tokens that are never generated */
    int32_t late[MHA__SUPPRESSED];       /* [late_count] tokens that are not generated first (begin_suppress_tokens) */
    int64_t forced_count;
    int32_t forced[MHA__FORCED]; /* [forced_count] the token at this position of the text; -1 = any */
    int64_t alignment_count;
    int32_t alignment[MHA__ALIGNMENT][2]; /* [alignment_count] layer and head of Whisper's alignment_heads, with layers
                                           * ascending */
    int64_t median_width;                 /* width of the filter of those maps */
    float embed_scale, logit_scale;       /* factors for embeddings and logits, computed from the fields above */
    mha_rope_options rope;                /* rotation; head_dim 0 = none; points to short_by and long_by */
    mha_rope_options local_rope;          /* rotation of sliding layers, if it differs; without longrope */
    double short_by[MHA_HEAD_DIM_MAX / 2], long_by[MHA_HEAD_DIM_MAX / 2]; /* [rotary_dim / 2] factors of longrope */
    int64_t window;                                                       /* window of sliding layers */
    int64_t local_keys;  /* ModernBERT: keys of a sliding layer on both sides together; determines `window` */
    bool windowed;       /* true if the family's key enables the window */
    int64_t full_layers; /* Qwen: leading layers without a window */
    int64_t window_pattern, rope_interval; /* every n-th layer has no window; every n-th layer has no rotation */
    mha__layer_attention attention[MHA__LAYERS];
    mha__quantization quantization;
    int64_t fp8_block[2];  /* rows and columns of a block that has a scale; 0 = no scale belongs to a block */
    const char *own_key;   /* key of this project that changes what layers compute; NULL = none */
    int32_t eos[MHA__EOS]; /* end-of-text tokens */
    int64_t eos_count;
} mha__config;

/* Type and range of a key in config.json. A key that is null counts as absent, and an absent key takes its default. */
typedef enum mha__key_kind {
    MHA__KEY_DIM,             /* integer in 1..max, stored as int64_t; required if it has no default */
    MHA__KEY_MAYBE_DIM,       /* like DIM, but the default may be 0 */
    MHA__KEY_DIM_IF,          /* like DIM, but an absent key does not change the field */
    MHA__KEY_DIM_OR_OFF,      /* like DIM, but null is 0, not the default */
    MHA__KEY_COUNT,           /* integer in 0..max, stored as int64_t */
    MHA__KEY_COUNT_OR_OFF,    /* like COUNT, but null is 0, not the default */
    MHA__KEY_ROW,             /* row of the embeddings, stored as int64_t; a negative row counts from the end; null = -1
                               * = none */
    MHA__KEY_POSITIVE,        /* finite number > 0, stored as double */
    MHA__KEY_POSITIVE_OR_OFF, /* finite number > 0, stored as double; null is 0 */
    MHA__KEY_FIXED,           /* not a key: a double that is always `initial` */
    MHA__KEY_BOOL,            /* bool; the default is `initial` */
    MHA__KEY_BOOL_IF,         /* like BOOL, but an absent key does not change the field */
    MHA__KEY_ACTIVATION,      /* name of an activation, stored as mha_activation; the default is `text` */
    MHA__KEY_ACTIVATION_IF,   /* like ACTIVATION, but an absent key does not change the field */
    MHA__KEY_TANH_GELU,       /* like ACTIVATION, but "gelu" is its tanh approximation (Gemma) */
    MHA__KEY_FEED_FORWARD,    /* like ACTIVATION; after "gated-", sets `gated` too (T5) */
    MHA__KEY_SIZE,            /* a dimension or a list of two, [height, width], stored as two int64_t */
    MHA__KEY_LABELS,          /* an object with an entry per class, stored as their number, or num_labels */
    MHA__KEY_ONLY_TEXT,       /* `text` is the only supported value */
    MHA__KEY_ONLY_FALSE,      /* false is the only supported value */
    MHA__KEY_ONLY_TRUE,       /* must be true or absent; null is rejected */
    MHA__KEY_ONLY_EMPTY,      /* must be an empty object or absent */
    MHA__KEY_QUANTIZATION     /* the object quantization_config, stored as `quantization` and `fp8_block` */
} mha__key_kind;

typedef struct mha__config_key {
    const char *key;
    mha__key_kind kind;
    size_t offset;    /* offset of the field in mha__config */
    double initial;   /* numeric default */
    int64_t max;      /* upper limit of a dimension */
    const char *text; /* default or only supported value (see mha__key_kind) */
} mha__config_key;

/* Dimensions of tensors that differ between layers. */
typedef struct mha__layer_widths {
    int64_t q, k, v, qkv; /* rows of the projections of q, k and v, and of all three */
    int64_t heads, k_heads;
    int64_t cross;                             /* rows of the projections of cross-attention */
    int64_t q_in, q_out, kv_low, kv_out, o_in; /* latent attention: columns and rows of its maps */
    int64_t gate_up;                           /* rows of gate and up in one tensor */
    int64_t scores, scored; /* layer that selects heads: number of scores, and width of the scored vector */
    int64_t one;            /* 1 */
} mha__layer_widths;

/* Returns the elements of a patch of an image; 0 for models of token ids. */
static inline int64_t mha__patch_width(const mha__config *config)
{
    return config->channels * config->patch_height * config->patch_width;
}

mha__layer_widths mha__config_widths(const mha__config *config, int64_t layer);
/* Returns the number that a layer's tensors have in their names: its own, or that of the group that shares them. */
int64_t mha__config_tensors(const mha__config *config, int64_t layer);
/* Returns the first layer with the same tensors: the layer itself, unless layers share tensors. */
int64_t mha__config_owner(const mha__config *config, int64_t layer);
/* Returns the number of role values (mha__expert_role) that a layer may have. */
int64_t mha__config_roles(const mha__config *config);
/* Returns true if some layers share their tensors. */
bool mha__config_shares(const mha__config *config);
/* Returns the elements per token and layer of caches that store latent vectors, as in latent attention unless they
 * exceed the width of a head; 0 if caches store keys and values. */
int64_t mha__config_latent_width(const mha__config *config);
/* Returns the first layer that selects heads for each text; -1 if none does. */
int64_t mha__config_choosing(const mha__config *config);
/* Returns true if a layer normalizes q and k with other weights per head. */
bool mha__config_head_gains(const mha__config *config);
/* Returns the number of heads in a layer that each text uses: all heads if the layer does not select heads. */
int64_t mha__config_kept(const mha__config *config, int64_t layer);

/* Reads and validates `folder`/config.json, or the text `given` if it is not NULL. Stores the content in *text (free
 * with mha__free), NUL-terminated, without a byte order mark. Errors: MHA_ERR_FORMAT for an invalid value,
 * MHA_ERR_UNSUPPORTED for an unsupported one; both messages name the key, its value and the folder, if any. */
mha_status mha__config_read(mha_ctx *ctx, const char *folder, const char *given, mha__config *config, char **text,
                            mha_error *err);
/* Frees the memory of a config, but not the struct; also after a failed read. */
void mha__config_release(mha_ctx *ctx, mha__config *config);
/* Reads the config of the encoder of an encoder-decoder; for these families, mha__config_read reads that of the
 * decoder. */
mha_status mha__config_read_encoder(mha_ctx *ctx, const char *folder, const char *given, mha__config *config,
                                    char **text, mha_error *err);
/* Reads the config of the image tower of a CLIP model; mha__config_read reads that of the text tower. */
mha_status mha__config_read_vision(mha_ctx *ctx, const char *folder, const char *given, mha__config *config,
                                   char **text, mha_error *err);

#endif

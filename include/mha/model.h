/* model.h - opens a Hugging Face checkpoint folder and runs the model.
 *
 * A folder contains config.json, tokenizer.json, and model.safetensors or its shards with their index, in the format of
 * transformers 4.x and 5.x. Supported families:
 *     encoders  bert, roberta, camembert, xlm-roberta, mpnet, distilbert, electra, albert, deberta-v2, nomic_bert,
 *               modernbert, with MLM heads
 *     decoders  gpt2, opt, bloom, gpt_neox, phi, cohere, llama (1 to 3), mistral, qwen2, qwen3, gemma, gemma2,
 *               gemma3_text, gemma3 (its text part), phi3, olmo2, granite, smollm3, starcoder2, and with experts
 *               mixtral, qwen2_moe, qwen3_moe, gpt_oss, deepseek_v3; with use_bidirectional_attention (EmbeddingGemma),
 *               gemma3_text is an encoder without logits
 *     encoder-decoders (seq2seq.h)  t5, mt5, bart, mbart, marian, pegasus, whisper
 *     vision (vision.h)  vit, clip, and the towers of clip: clip_text_model, clip_vision_model
 * Other families return an error that names them. Weights may be quantized (quantization_config): MXFP4 experts of
 * gpt-oss, and 8-bit floats with scales; docs/commands.md lists the forms. Weights are used in place from the mapped
 * file where their type allows it; dense weights are packed once when the model is opened. Where config.json and the
 * tensors disagree, they are read as in transformers 5: a stored language-model head is used if it differs from the
 * embedding table, even if tie_word_embeddings is true; a decoder saved without a head (LlamaModel) has logits only
 * if its embeddings are tied. Results equal those of transformers in float32 within rounding, unless a 16-bit or
 * 8-bit type is chosen.
 */
#ifndef MHA_MODEL_H
#define MHA_MODEL_H

#include "mha/cache.h"
#include "mha/ctx.h"
#include "mha/layer.h"
#include "mha/model_ranks.h"
#include "mha/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_model mha_model;

typedef struct mha_model_options {
    size_t size;
    int no_map;       /* 1 = copy the weights instead of mapping the file; the file may then change (io.h) */
    int no_weights;   /* 1 = check everything, but do not pack weights, as in `mha info`; forward is then MHA_ERR_ARG */
    int no_tokenizer; /* 1 = do not open tokenizer.json */
    /* Type of the packed dense weights, independent of the type in the file: f32 (default), bf16, f16 or q8_0
     * (layer.h). With bf16 and q8_0, attention runs in bf16. Norms, sums and results stay f32. Relative error to f32
     * (root mean square): last hidden states of the small test models up to 2 % in bf16, 0.2 % in f16 and 6 % in q8_0;
     * sentence vectors of MiniLM 0.6 %, 0.05 % and 4 %. */
    mha_dtype dtype;
    /* Tensors in memory (f32), such as weights changed by training or pruning. They replace tensors of the same name in
     * the files; all other tensors are added. The list itself may be freed after opening; names and data are used in
     * place and must not change during the life of the model. To use other data, open the model again. */
    const mha_named_tensor *tensors;
    int64_t tensor_count;
    const char *config_json; /* replaces the folder's config.json: NUL-terminated UTF-8 JSON; NULL = the file */
    /* 1 = read no weights from the folder: `tensors` and `files` contain all tensors that the model needs. The folder
     * need not contain a tokenizer; if config_json is set, `folder` may be NULL. */
    int memory_only;
    /* The processes that divide the weights of the model (model_ranks.h): this process reads and stores only its part,
     * and mha_model_open is collective. The struct is copied. NULL = this process opens the whole model. */
    const mha_model_ranks *ranks;
    /* With memory_only: open files whose tensors, of any storage type, are the weights, such as the shards of a
     * checkpoint in memory (mha_file_open_memory). Names must be unique. The files must outlive the model; the list
     * itself may be freed after opening. */
    const struct mha_file *const *files;
    int64_t file_count;
    const char *tokenizer_json; /* replaces the folder's tokenizer.json: NUL-terminated UTF-8 JSON; NULL = the file */
} mha_model_options;

/* Opens a folder, or a GGUF file (version 3) of the architectures that docs/commands.md lists: its keys become the
 * config and the tokenizer, which mha_model_save writes as files, and its tensors get the names of the family.
 * `options` may be NULL. `ctx` must outlive the model. The model is immutable: any number of threads may run it
 * concurrently. Errors name the file, the key or tensor, and the value: MHA_ERR_IO, MHA_ERR_FORMAT, MHA_ERR_MEMORY, and
 * MHA_ERR_UNSUPPORTED for a model_type, activation, position embedding, quantization or storage type that is not
 * supported.
 * Memory: the packed dense weights, of all experts (4 bytes per weight in f32, 2 in bf16 and f16, about 33 per 32
 * weights in q8_0), and the tables that cannot be used in place. In latent attention, kv_b_proj is packed twice. */
MHA_API mha_status mha_model_open(mha_ctx *ctx, const char *folder, const mha_model_options *options, mha_model **out,
                                  mha_error *err);
MHA_API void mha_model_free(mha_model *model);

/* Returns the context that the model was opened with; NULL for the default context. */
MHA_API mha_ctx *mha_model_ctx(const mha_model *model);

/* The attention of a layer, as defined by the family or by the key "mha.attention" (below). */
typedef struct mha_model_attention {
    int64_t window;              /* N: a query attends to the last N tokens (encoders: distance < N); 0 = all */
    int rotary, qk_norm, alibi;  /* 1 = the layer uses this option (below) */
    double scale;                /* scale of scores; 0 = 1 / sqrt(head_dim) where head_dim depends on the text */
    double softcap;              /* 0 = off */
    mha_choice choice;           /* how the layer selects heads for each sequence (layer.h) */
    mha_selection selection;     /* unused with MHA_CHOICE_EXPERTS */
    int64_t heads_per_text;      /* heads computed per sequence: all, the selected ones, or the largest option */
    const int64_t *head_options; /* [head_option_count] with MHA_CHOICE_OPTIONS */
    int64_t head_option_count;
} mha_model_attention;

/* Description of the checkpoint. Valid until the model is freed. Only the library creates this struct; later versions
 * may add fields at the end. */
typedef struct mha_model_info {
    const char *family;                                              /* model_type, such as "llama" */
    int64_t layers, heads, kv_heads, head_dim, hidden, intermediate; /* as in config.json */
    int64_t vocab, max_positions, type_vocab;
    int64_t parameters;             /* elements of the weights that the model uses */
    int64_t bytes;                  /* bytes of these weights in the file, or as written by mha_model_save */
    int64_t kv_bytes_per_token;     /* bytes of cached keys and values per token, in f32; 0 for encoders. In latent
                                     * attention, of the latent vectors and the rotated key */
    const int64_t *heads_per_layer; /* [layers] smaller than `heads` in pruned layers ("mha.heads" below) */
    int causal;                     /* 1 for decoders */
    mha_dtype dtype;                /* type of the stored weights */
    int logits;                     /* 1 if the model has logits of tokens, or of the classes of an image */
    /* [layers] key heads and value heads in the weights of a layer ("mha.kv_heads" below) */
    const int64_t *key_heads_per_layer, *value_heads_per_layer;
    const int64_t *feed_forward_per_layer;          /* [layers] feed-forward width; with experts, total width of the
                                                     * experts that run for a token; 0 = none */
    const mha_model_attention *attention_per_layer; /* [layers] */
    int64_t original_heads; /* heads of the unpruned model; larger than `heads` if all layers were pruned equally */
    /* 1 = rotation depends on the length of the text, so a cached key depends on the length at the time it was
     * computed: prefixes are not shared, prompts are not prefilled in chunks, and prompt lookup has no effect
     * (generate.h) */
    int rotation_by_length;
    int encoder_decoder;   /* 1 = this describes the decoder of an encoder-decoder (seq2seq.h) */
    int64_t decoder_start; /* the token that every text of this decoder begins with; -1 = none */
    /* Models that read images (vision.h): shapes of an image and of a patch [pixels], and the classes of an image
     * classifier; 0 for other models. vocab is then 0, and max_positions the number of tokens of an image. */
    int64_t image_channels, image_height, image_width, patch_height, patch_width, classes;
    int64_t embedding_width; /* width of the vectors of mha_model_embed: hidden; in CLIP, that of the common space; that
                              * of the last dense layer of a sentence-transformers folder */
    int64_t feature_bins;    /* log-mel bins per frame of an encoder that reads audio features (audio.h); 0 = tokens */
    int64_t logit_width; /* columns of the logits: vocab, classes, or 1 for a discriminator (ELECTRA), whose `logits`
                              * is 0; 0 = the model has no logits */
    const int64_t *cross_heads_per_layer; /* [layers] encoder-decoders: heads of the cross-attention of each decoder
                                           * layer, at most `heads`; NULL for other models */
    int images_ignored; /* 1 = the checkpoint is a model of text and images (gemma3), of which only the text part was
                         * opened: tensors that read images are neither read nor counted, but copied when it is saved */
    int pool;           /* mha_pool that a sentence-transformers folder defines (mha_model_embed); MHA_POOL_MEAN if the
                         * folder defines none, or one that is not supported: mha_model_embed then fails */
    int position_table; /* 1 = positions are rows of a table, learned or computed, so that a sequence of more than
                         * max_positions tokens is an error; 0 = longer sequences are accepted (rotary, relative ...) */
} mha_model_info;
MHA_API const mha_model_info *mha_model_describe(const mha_model *model);

/* Writes the fingerprint of a model: 16 hexadecimal digits and a NUL. It is a hash of the config, the elements of all
 * weights, and the exact hidden states of up to 16 tokens, which depend on the type of packed weights and on the ISA.
 * File names do not affect it. Detects accidental but not malicious changes. Cost: one read of the weights and one
 * forward pass over these tokens.
 *
 * In a model that is divided among ranks (model_ranks.h), the call is collective, and no tensor is read again. The hash
 * then covers the config, the tensor names, types and shapes, the norms, biases and word embeddings, the first 64 bytes
 * of each matrix, the hidden states, and the logits of the last token; it is the same for any number of ranks. Errors:
 * MHA_ERR_MEMORY, and those of mha_model_forward. */
MHA_API mha_status mha_model_fingerprint(const mha_model *model, char text[17], mha_error *err);

/* A pruned checkpoint contains only the rows and columns of the kept heads. The key "mha.heads" of config.json lists
 * them per layer by their original numbers, ascending, in whole groups if keys are shared. A tensor whose shape
 * contradicts config.json is an error. If all layers of a pruned model have the same head count and the family has keys
 * for it (num_attention_heads, num_key_value_heads, head_dim: all families but BERT and GPT-2, where the head width is
 * hidden_size / num_attention_heads), these keys contain that count, so that transformers loads the model.
 * "mha.original_heads" is then the head count before pruning, which is greater than every number in "mha.heads".
 *
 * In an encoder-decoder, "mha.heads" is an object with these lists: "encoder", "decoder", and "cross" for the
 * cross-attention of the decoder; an absent member means all heads. The tables of relative positions of a T5 have a
 * column for each head that at least one layer of the side keeps. In a CLIP model, the list of a tower is in its
 * object, text_config or vision_config.
 *
 * The key "mha.kv_heads": {"keys": N, "values": M} sets the key head count and value head count of a layer if the
 * family's own keys cannot express them: in BERT and GPT-2, where the two counts differ, or where layers differ (N and
 * M are then lists with one count per layer). Each count must divide the head count of the layer; of H heads, head h
 * reads key head h / (H / N) and value head h / (H / M). "mha.heads" then lists the original numbers of the heads in
 * the order of their rows, which may be any order. num_key_value_heads is unchanged. Where N and M differ, each head is
 * repeated after the projection, and a cache stores the least common multiple of both counts.
 *
 * The key "mha.feed_forward": false, or a list of booleans per layer, defines which layers have a feed-forward part. A
 * layer without one is attention only, x = x + attention(norm(x)) in a decoder (Elhage et al. 2021): it has neither
 * feed-forward tensors nor the norms around them. transformers ignores this key and would initialize the missing
 * tensors randomly.
 *
 * The key "mha.attention" replaces the attention of the family: a list with an entry per layer, or one entry for all
 * layers. An entry is null, or an object with these keys:
 *     "window": N       a query attends to the last N tokens, itself included (encoders: distance < N); null = all
 *     "rotary": bool    rotate q and k by rope_theta and rope_scaling of the config; false: no positions (NoPE)
 *     "qk_norm": bool   RMSNorm of each head of q and k, before rotation: tensors q_norm and k_norm, as in Qwen3;
 *                       Cohere and Phi: LayerNorm, as in transformers
 *     "alibi": bool     subtract |i - j| times a slope per head from the scores (Press et al. 2022); a head keeps its
 *                       slope when others are removed
 *     "scale": number   scale of the scores; null = 1 / sqrt(head_dim)
 *     "softcap": number replace scores with softcap tanh(score / softcap), as in Gemma-2; null = off
 *     "moe_heads": {"top_k": N}
 *                       mixture of experts, where the heads are the experts: each text gets the N [2] heads with the
 *                       largest scores, weighted by the softmax of these scores (MHA_CHOICE_EXPERTS of layer.h)
 *     "head_pruning": {"prune_ratio": R, "selection": S}
 *                       each text gets (int)(heads (1 - R)) heads, computed in double, at least one. Their gates are
 *                       the sigmoid of their scores (S "soft", the default); or 1 with the gradient of the sigmoid
 *                       ("straight_through"); or 1 without a gradient ("hard", as published) (MHA_CHOICE_HEADS)
 *     "adaptive_heads": {"head_options": [1, 2, 4], "predictor_width": P, "selection": S}
 *                       each text gets one of 1 to 16 head counts, which split the columns of the layer into heads up
 *                       to MHA_HEAD_DIM_MAX wide, chosen by a predictor of width P [128]; all heads have one gate, the
 *                       softmax of the scores or 1, depending on S (MHA_CHOICE_OPTIONS). Excludes rotary, qk_norm,
 *                       alibi and shared keys
 * The last three keys are for encoders only: the scores depend on the mean of all tokens, and in a decoder this mean
 * would include later tokens. They have their own tensors, head_choice, and head_choice_hidden for a predictor. Heads
 * of these layers can be measured and plotted, but they cannot be removed (prune.h), regrouped or trained with learned
 * gates. A model with adaptive_heads in a layer provides no per-head results: its head count depends on the text. Keys
 * missing from an entry take the values of the family's own keys (layer_types, sliding_window, attn_logit_softcapping,
 * query_pre_attn_scalar ...). "mha.heads" defines the head count of a layer and "mha.kv_heads" how its heads share keys
 * and values (MHA, GQA, MQA), in new models too. transformers ignores all of these keys silently and computes the
 * attention of the family. */

/* Returns the config.json that was read, as UTF-8 JSON. */
MHA_API const char *mha_model_config_json(const mha_model *model);

/* Returns the tokenizer of the model; NULL if the model was opened without one. */
MHA_API const mha_tokenizer *mha_model_tokenizer(const mha_model *model);

/* ---- decoding: the KV cache ---- */

/* Keys and values of B sequences in every layer, in pages (cache.h). Layers with a window keep only the keys and values
 * of the window.
 *
 * In latent attention (deepseek_v3), the cache stores kv_lora_rank + qk_rope_head_dim elements per token and layer for
 * all heads together, and passes with the cache use the absorbed form (latent_attention.h). These passes are bitwise
 * identical for any division of a sequence into calls, but differ from a pass without a cache by rounding: in float32,
 * by at most 1e-5 of the largest logit in the test models. With `expanded`, the cache stores the keys and values of all
 * heads, and passes with the cache are bitwise identical to a pass without it, as in other families. The absorbed form
 * needs (2 kv_lora_rank + rope) / (nope + rope + value) times the operations per pair of tokens, so a long prompt takes
 * more time, but a decoded token reads fewer bytes. */
typedef struct mha_model_cache mha_model_cache;

typedef struct mha_model_cache_options {
    size_t size;
    int64_t batch;   /* B   0 = 1 */
    int64_t tokens;  /* capacity per sequence; 0 = max_positions. Memory is committed on first use */
    mha_dtype dtype; /* storage type: f32 (default), bf16 (default if the model was opened in bf16 or q8_0), f16, q8_0,
                          q4_0 (heads of a multiple of 32 elements) or f8_e4m3 */
    int64_t page_size; /* as in mha_cache_desc */
    /* Encoder-decoders: capacity for the tokens of the source, per sequence; 0 = max_positions of the encoder. Keys and
     * values of sources are stored as f32. */
    int64_t source_tokens;
    int expanded; /* 1 = store keys and values of all heads, in a model with latent attention */
} mha_model_cache_options;

/* Creates an empty cache. `model` must outlive the cache. MHA_ERR_UNSUPPORTED for an encoder. */
MHA_API mha_status mha_model_cache_create(const mha_model *model, const mha_model_cache_options *options,
                                          mha_model_cache **out, mha_error *err);
MHA_API void mha_model_cache_free(mha_model_cache *cache);

/* Return the number of tokens in a sequence (-1 for an unknown sequence), and the number of bytes of all layers'
 * caches. */
MHA_API int64_t mha_model_cache_length(const mha_model_cache *cache, int64_t sequence);
MHA_API size_t mha_model_cache_bytes(const mha_model_cache *cache);
/* Call mha_cache_clear, mha_cache_truncate and mha_cache_fork for every layer. A fork shares the first `length` tokens
 * of `from` with `to`. After an error, no layer has changed. */
MHA_API mha_status mha_model_cache_clear(mha_model_cache *cache, int64_t sequence, mha_error *err);
MHA_API mha_status mha_model_cache_truncate(mha_model_cache *cache, int64_t sequence, int64_t length, mha_error *err);
MHA_API mha_status mha_model_cache_fork(mha_model_cache *cache, int64_t from, int64_t to, int64_t length,
                                        mha_error *err);

/* ---- the forward pass ---- */

/* Part of one sequence of L tokens that is divided among several processes. The pass computes only the tokens of the
 * ranges in `start` and `length`, in this order, through all layers. For the attention of each layer it calls `attend`,
 * which gets queries, keys and values of the shard's tokens (mha_layer_shard in layer.h) and must compute attention
 * over the whole sequence; see mha_cluster_attention in cluster.h. */
typedef struct mha_model_shard {
    size_t size;
    int64_t count;                 /* number of ranges; `attend` is called in every layer even if the shard has no
                                    * tokens */
    const int64_t *start, *length; /* [count] ascending, not overlapping, within 0 .. L-1; a length may be 0 */
    mha_status (*attend)(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args,
                         mha_error *err);
    void *user;
} mha_model_shard;

/* B sequences of L tokens, padded to the same length. Any mask is allowed, even with masked tokens between real ones:
 * no query attends to a masked token, regardless of its id. The default positions are 0 .. L-1, independent of the
 * mask, with two exceptions. In opt, default positions count the real tokens. In roberta, camembert, xlm-roberta and
 * mpnet, they count the ids that are not the padding id (pad_token_id; 1 in mpnet), starting at the padding id + 1, and
 * a given position is a row of the table. max_positions is the number of tokens that the position table supports. */
typedef struct mha_model_input {
    size_t size;
    int64_t batch, length;
    const int32_t *ids;       /* [B, L] 0 <= id < vocab, even for masked tokens */
    const int32_t *type_ids;  /* [B, L] 0 <= type < type_vocab, 0 for models without types; NULL = 0 */
    const uint8_t *mask;      /* [B, L] non-zero = real token, 0 = padding; NULL = all real */
    const int32_t *positions; /* [B, L] >= 0, learned positions below max_positions; NULL = 0 .. L-1 */
    /* The tokens continue the cached sequences and are appended to them; positions continue. Decoding token by token,
     * or in chunks, is bitwise identical to one pass (in latent attention, to one pass with a cache). B must be the
     * batch of the cache. A mask may only mark padding at the end, and may leave a sequence without tokens. Rejected
     * input (ids included) leaves the cache unchanged; a later failure removes the tokens of all sequences. */
    mha_model_cache *cache;
    int64_t sequence; /* with batch 1 and a cache of several sequences: index of the sequence */
    /* Packed sequences of any lengths, without padding: sequence b is tokens starts[b] to starts[b + 1] of
     * ids [starts[B]], and all arrays [B, L] have starts[B] rows instead. `length` is ignored; mask and cache must be
     * NULL. Results are bitwise identical to separate calls. */
    const int64_t *starts; /* [B + 1] strictly ascending from 0; NULL = padded to one length */
    /* [layers, B, H] factors for the output of each head, per sequence: 0 removes a head; NULL = ones. A layer with
     * fewer than H heads reads only the first entries. */
    const float *gates;
    /* [layers, H, D] added to the gated output of each head, for every token; NULL = zeros. A gate of 0 and a fill with
     * the head's mean output over a data set is mean ablation. A layer with fewer than H heads reads only the first
     * entries. */
    const float *fills;
    /* Starts the pass at layer `first_layer` with its input `hidden` [B, L, E], which is the entry of on_hidden with
     * the same number. The layers before it do not run, and no callbacks are called for them; ids and type_ids are
     * ignored and may be NULL. All other results are bitwise identical to those of the full pass; positions are still
     * read. `hidden` may be exactly last_hidden of the output, which overwrites it; rows of masked tokens are
     * arbitrary. NULL with first_layer = 0 starts from the ids. With a cache `first_layer` must be 0, because every
     * layer caches keys. */
    int64_t first_layer;
    const float *hidden;
    /* [B, L, heads D] input of the output projection of layer `first_layer`, as passed to on_activations and possibly
     * changed. That layer then computes no queries, keys, values or attention, and ignores its gates and fills.
     * Requires `hidden`; outputs of the attention cannot be requested. NULL = computed. */
    const float *context;
    /* Requires batch 1. ids, type_ids and positions are those of the whole sequence; last_hidden, logits and the
     * entries of on_hidden have one row per token of the shard. pooled is written if the shard contains token 0,
     * last_logits if it contains token L-1. mask, cache, starts and hidden must be NULL. MHA_ERR_UNSUPPORTED with
     * callbacks other than on_hidden, and for models with relative positions or head selection per text. NULL = the
     * whole sequence. */
    const mha_model_shard *shard;
    /* Encoder-decoders: the input of the encoder, with the same batch and without cache (seq2seq.h). With a cache, it
     * is given with the first tokens of a sequence; later calls read the cached keys and values of the source and pass
     * NULL. With `starts`, the source is packed too; sequence b of the source belongs to sequence b of the input. If
     * `hidden` of the source contains the last hidden states of the encoder, with the number of its layers as
     * first_layer, the encoder does not run. Must be NULL if shard is set. */
    const struct mha_model_input *source;
    /* Models that read images (vision.h): [B, image_channels, image_height, image_width], instead of ids. `length` is
     * then 0 or max_positions, or `starts` has max_positions tokens per image; type_ids, mask, positions, cache and
     * shard must be NULL. NULL for other models. */
    const float *pixels;
    /* [B, feature_bins, 2 L] for encoders that read audio features (audio.h), where L must be max_positions; ids, mask,
     * starts and shard must be NULL. Must be NULL for other models. */
    const float *features;
    /* Encoder-decoders: [layers, B, H] factors for the output of each head of the cross-attention, as `gates` for the
     * self-attention; NULL = ones. Gates of the encoder are those of `source`. Must be NULL for other models. */
    const float *cross_gates;
    /* Encoder-decoders: [layers, H, D] added to the gated output of each head of the cross-attention, as `fills`;
     * NULL = zeros. Fills of the encoder are those of `source`. Must be NULL for other models. */
    const float *cross_fills;
} mha_model_input;

/* The kinds of heads of an encoder-decoder. Other models have the first kind only. */
typedef enum mha_head_kind {
    MHA_HEADS_OWN = 0, /* the self-attention of the model: of the decoder, in an encoder-decoder */
    MHA_HEADS_CROSS,   /* the cross-attention of the decoder */
    MHA_HEADS_ENCODER, /* the self-attention of the encoder */
    MHA_HEAD_KINDS
} mha_head_kind;

/* Identifies a head by its layer and its index in the layer. */
typedef struct mha_model_head {
    int32_t layer, head;
} mha_model_head;

/* Statistics of the rows and keys of one layer's attention, without its maps; stats.h defines each. Packed sequences
 * (starts) have [heads, starts[B]] in place of [B, heads, L] and [B, heads, K]. Rows and keys of masked tokens are
 * unspecified and do not contribute to other rows and keys. Only the library creates this struct; later versions may
 * add fields at the end. */
typedef struct mha_model_stats {
    int64_t layer, heads, keys;                        /* the layer, the number of its heads, and K */
    const float *row_entropy, *row_max, *row_distance; /* [B, heads, L] in bits, as a probability, and in tokens */
    const int64_t *row_argmax;                         /* [B, heads, L] key with the probability row_max */
    const float *received;                             /* [B, heads, K] probabilities of each key, summed over the rows
                                                        * of this call */
    const float *top_prob;                             /* [B, heads, L, top_keys] largest p; NULL without top_keys */
    const int64_t *top_key;                            /* [B, heads, L, top_keys] keys of top_prob */
} mha_model_stats;

/* Activations of the attention of one layer for all tokens of the call. Rows are [B, L], or those of packed sequences
 * (starts). Elements are f32; in a 16-bit model q, k, v and c have been rounded to that type. c is the output of the
 * operator for a head, softmax(q k^T) v:
 *
 *     context of a head = gate c + fill         (equals c without gates and fills; in layers that select heads per
 *                                                text, gate includes the gate of the selected head)
 *     out = context Wo^T + bo
 *
 * Query head h reads key head h / (heads / kv_heads). Rows of masked tokens are unspecified. With a cache, k and v are
 * those of the tokens of this call, before they are stored. Only the library creates this struct; later versions may
 * add fields at the end. */
typedef struct mha_model_activations {
    int64_t layer, rows, heads, kv_heads, head_dim; /* the layer; sizes of the arrays below */
    const float *input;                             /* [rows, E] input of the projections, after the pre-norm */
    const float *q;                                 /* [rows, heads head_dim] normalized and rotated; row stride
                                                     * `stride` */
    const float *k, *v;   /* [rows, kv_heads head_dim] row stride `stride`; k is normalized and rotated */
    int64_t stride;       /* elements between rows of q, k or v */
    const float *context; /* [rows, heads head_dim] input of the output projection */
    const float *out;     /* [rows, E] result of the output projection, before the residual and later norms */
} mha_model_activations;

/* One head and one query token in the activations of a layer; valid as long as these. */
typedef struct mha_head_steps {
    int64_t rows, head_dim, stride; /* tokens of the call; D; elements between rows of k and v */
    const float *q, *k, *v;         /* [D]; [rows, D] of the key/value head that the head reads; the same of values */
    const float *context;           /* [D] output of the head */
    double scale;                   /* of the products of q and k */
} mha_head_steps;

/* Writes the steps of head `head` (by position in the layer) for row `row` of a call. MHA_ERR_ARG for a head or row
 * that the activations do not have. */
MHA_API mha_status mha_model_head_steps(const mha_model *model, const mha_model_activations *a, int64_t head,
                                        int64_t row, mha_head_steps *steps, mha_error *err);
/* Returns the score of the query with the key of row `key`, before softcap, masks and position terms: scale times the
 * product of q and k, summed in double. */
MHA_API double mha_head_steps_score(const mha_head_steps *steps, int64_t key);

/* Requested outputs; NULL fields are not computed. The callbacks run on the calling thread, layer by layer, so that
 * at most the maps of one layer are in memory; their arguments are valid during the call only. A callback that
 * returns non-zero stops the forward pass with MHA_ERR_CANCELED. Rows of masked tokens are unspecified; after a
 * failure, all outputs are unspecified. */
typedef struct mha_model_output {
    size_t size;
    float *last_hidden; /* [B, L, E]; in decoders after the final norm. E is also the width if OPT maps these states to
                         * a narrower output head (word_embed_proj_dim) */
    float *pooled;      /* [B, E] tanh pooler of BERT and ViT, pooled vector of CLIP; MHA_ERR_UNSUPPORTED if the
                         * checkpoint has none */
    float *logits;      /* [B, L, vocab], in image classifiers [B, classes], in discriminators [B, L] log-odds that a
                         * token was replaced; MHA_ERR_UNSUPPORTED for a checkpoint without logits */
    float *last_logits; /* [B, logit_width] logits of the next token, from the last real token of each sequence */
    /* Receives hidden states x [B, L, E]. Entry 0 contains the embeddings (in BERT after their norm), and entry n the
     * output of layer n - 1, which is the input of layer n. The last entry is taken after the final norm, except in
     * ViT and CLIP. */
    int (*on_hidden)(void *user, int64_t entry, const float *x);
    /* Receives probs [B, heads, L, K] of one layer; `heads` counts the heads of the layer, or those in map_heads. K,
     * the number of keys, is L; with a cache L plus the cached tokens of the longest sequence. With starts, maps are
     * [B, heads, M, M], where M is the length of the longest sequence, and 0 outside a shorter one. */
    int (*on_attention)(void *user, int64_t layer, int64_t heads, const float *probs);
    void *user;
    /* Heads whose maps are requested, with layers ascending; probs has the heads of a layer in the order of the list.
     * on_attention is called for these layers only, and on_rows gets these heads only. NULL = all heads. */
    const mha_model_head *map_heads;
    int64_t map_count;
    /* [B, map_row_count] requested rows of each sequence, instead of L, in any order: n = row n of this call, -n = the
     * n-th row from the end. probs are 0 for a row that a sequence does not have. Rows that are not requested cost no
     * time. NULL = all rows. */
    const int64_t *map_rows;
    int64_t map_row_count;
    /* Receives the statistics of every layer, after on_attention: for head measurements on long sequences, whose L x K
     * maps would not fit in memory. The operator recomputes the scores for them (the cost is in stats.h). */
    int (*on_stats)(void *user, const mha_model_stats *stats);
    int64_t top_keys; /* 0..32 */
    /* Receives queries, keys, values and head outputs of every layer, after on_stats. */
    int (*on_activations)(void *user, const mha_model_activations *a);
    /* Receives rows of probabilities of one layer, streamed, so that memory grows linearly with the longest sequence;
     * stats.h defines their order. Called for all rows of real tokens, or for those in map_heads and map_rows. Unlike
     * the other callbacks, it is called from all threads of the context and cannot stop the pass. */
    void (*on_rows)(void *user, int64_t layer, const mha_attn_rows *rows);
    /* [layers, B, H] written for the layers that run: 1 = the head is computed for the sequence; 0 = it is skipped,
     * or the layer does not have this head. Only layers that choose heads per text skip heads; layers that choose
     * the head count compute all heads. */
    uint8_t *kept;
    /* Encoder-decoders: outputs of the encoder; called or written before those of the decoder. Requires `source`. */
    const struct mha_model_output *encoder;
    /* Encoder-decoders: cross-attention probs [B, heads, L, S] of one layer, after on_attention of the layer. S is the
     * length of `source`; with a cache, the longest source of the call. Elements of masked tokens of the source are
     * 0. MHA_ERR_UNSUPPORTED with starts. */
    int (*on_cross_attention)(void *user, int64_t layer, int64_t heads, const float *probs);
    float *embedding; /* [B, embedding_width] CLIP (vision.h): L2-normalized; MHA_ERR_UNSUPPORTED for other models */
    /* Heads whose cross-attention is passed to on_cross_attention, as map_heads for on_attention: the callback is
     * called for the layers of these heads only. NULL = all heads. */
    const mha_model_head *cross_map_heads;
    int64_t cross_map_count;
    /* Encoder-decoders: context and out of the cross-attention of a layer, after on_cross_attention; all other arrays
     * are NULL, and kv_heads and stride are 0. */
    int (*on_cross_activations)(void *user, const mha_model_activations *a);
} mha_model_output;

/* Runs the model. `output` may be NULL. The results of a sequence are bitwise identical alone, in a batch or padded,
 * for any number of threads and any set of requested outputs.
 * Errors: MHA_ERR_ARG for a length beyond learned max_positions or an id outside the vocabulary (all are checked before
 * the first layer runs), MHA_ERR_UNSUPPORTED, MHA_ERR_MEMORY, MHA_ERR_CANCELED.
 * Allocations: the memory of the pass, and an operator plan; one more plan for each layer whose shape or requested
 * heads differ from those of the previous layer, and one per sequence if the head count depends on the text.
 * Cost: 2 operations per dense weight and token, plus those of the operator. If only maps, rows or statistics are
 * requested, the last layer ends after its attention. Additional memory: on_attention B heads L K floats for the layer
 * with most heads; on_stats 20 bytes per head and row, 4 per head and key, and 12 per entry of top_keys;
 * on_activations 2 E + 2 (H + Hkv) D floats per token. */
MHA_API mha_status mha_model_forward(const mha_model *model, const mha_model_input *input,
                                     const mha_model_output *output, mha_error *err);

typedef enum mha_pool { MHA_POOL_MEAN = 0, MHA_POOL_CLS } mha_pool;

typedef struct mha_embed_options {
    size_t size;
    mha_pool pool;    /* MHA_POOL_MEAN: mean of the real tokens; MHA_POOL_CLS: the first token */
    int no_normalize; /* 1 = do not L2-normalize */
    /* Replaces the forward pass of texts with more than `long_tokens` tokens: writes the pooled vector [E], before
     * normalization, of `input`, a batch of one text. NULL = the forward pass of this process. */
    mha_status (*pool_long)(void *user, const mha_model_input *input, mha_pool pool, float *vector, mha_error *err);
    int64_t long_tokens;
    void *user;
} mha_embed_options;

/* Embeds texts: out [count, embedding_width], one vector per text. `options` may be NULL. In CLIP, the vector is the
 * projection of the pooled token, and `pool` and pool_long must be 0 and NULL.
 *
 * In a sentence-transformers folder, modules.json lists what follows the model. Its dense layers (2_Dense) are applied
 * to the pooled vector, before normalization. Its pooling (1_Pooling) is mha_model_info.pool, which the caller passes
 * as `pool`. A folder with another kind or order of modules, another pooling or activation opens, but this function
 * then fails with MHA_ERR_UNSUPPORTED and names the module. Edited and saved models have none of these files.
 *
 * Texts are NUL-terminated UTF-8. A text with more than max_positions tokens is truncated, with a warning in the log of
 * the context: "text 3 of 7: 600 tokens, 88 were truncated; the model accepts 512". Runs in batches without padding;
 * the vector of a text is bitwise independent of all other texts. Reports progress as "embed". Errors: MHA_ERR_ARG for
 * a text that is NULL, not UTF-8 or without tokens, naming it; MHA_ERR_UNSUPPORTED, MHA_ERR_MEMORY,
 * MHA_ERR_CANCELED. */
MHA_API mha_status mha_model_embed(const mha_model *model, const char *const *texts, int64_t count,
                                   const mha_embed_options *options, float *out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif

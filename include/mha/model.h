/* model.h - a Hugging Face checkpoint folder, opened and run.
 *
 * A folder holds config.json, tokenizer.json, and model.safetensors or its shards with their index. Families: bert
 * (and its MLM head), gpt2, llama (1 to 3), mistral, qwen2, qwen3, gemma2; in the spelling of transformers 4.x and 5.x.
 * Others are refused by name. Weights are used in place from the mapped file where the type allows; dense weights are
 * packed once at opening. Where config.json and the tensors differ, they are read as transformers 5 reads them: a head
 * of logits that is stored is used if its content is not that of the words, whatever tie_word_embeddings says; a
 * decoder that was saved without a head (LlamaModel) has no logits unless they are tied. Numbers are those of
 * transformers in float32, within rounding, unless it is opened in fewer bits.
 */
#ifndef MHA_MODEL_H
#define MHA_MODEL_H

#include "mha/cache.h"
#include "mha/ctx.h"
#include "mha/layer.h"
#include "mha/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_model mha_model;

typedef struct mha_model_options {
    size_t size;
    int no_map;       /* 1 = copy the weights instead of mapping the file, which may then change (io.h) */
    int no_weights;   /* 1 = check everything, but do not pack weights: for mha info; forward is then MHA_ERR_ARG */
    int no_tokenizer; /* 1 = do not open tokenizer.json */
    /* What dense weights are packed as, whatever the file holds: f32 (default), bf16, f16 or q8_0 (layer.h). With bf16
     * attention runs in bf16 as well. What lies between, norms, sums and results, stays f32. Beside f32, the last
     * hidden states of the small test models are off by up to 2 % of their size in bf16, 0.2 % in f16 and 4 % in q8_0
     * (root mean square), sentence vectors of MiniLM by 0.6 %, 0.05 % and 2 %. */
    mha_dtype dtype;
    /* Tensors in memory, of f32, that take the place of those of the same name in the files, or join them: weights
     * that training or pruning has changed. The list may go after opening; names and data are used in place
     * and must stay as they are as long as the model lives. Opening again packs what has changed since. */
    const mha_named_tensor *tensors;
    int64_t tensor_count;
    const char *config_json; /* read in place of the folder's config.json: UTF-8 JSON, terminated; NULL = that */
    /* 1 = no weights are read from the folder: all that the model needs are in `tensors`. The folder may then be
     * without a tokenizer, too; with config_json it may be NULL. */
    int memory_only;
} mha_model_options;

/* Opens a folder. `options` may be NULL. `ctx` must outlive the model. Immutable afterwards: any number of threads may
 * run it at once. Errors name the file, the key or tensor, and the value: MHA_ERR_IO, MHA_ERR_FORMAT, MHA_ERR_MEMORY,
 * and MHA_ERR_UNSUPPORTED for a model_type, activation, position embedding, quantization or storage type that is not
 * built.
 * Memory: the packed dense weights (4 bytes each in f32, 2 in bf16 and f16, 34 for each 32 in q8_0) and what of the
 * tables cannot be used in place. */
MHA_API mha_status mha_model_open(mha_ctx *ctx, const char *folder, const mha_model_options *options, mha_model **out,
                                  mha_error *err);
MHA_API void mha_model_free(mha_model *model);

/* The context it was opened with; NULL for the default one. */
MHA_API mha_ctx *mha_model_ctx(const mha_model *model);

/* The attention of a layer, as the family or the key "mha.attention" (below) has it. */
typedef struct mha_model_attention {
    int64_t window;              /* a row sees the N latest tokens (encoders: fewer than N away); 0 = all */
    int rotary, qk_norm, alibi;  /* 0 or 1 */
    double scale;                /* of scores; 0 = 1 / sqrt(their width), where heads have another for each text */
    double softcap;              /* 0 = off */
    mha_choice choice;           /* of heads, for each sequence (layer.h) */
    mha_selection selection;     /* not of MHA_CHOICE_EXPERTS */
    int64_t heads_per_text;      /* that each sequence gets; all without a choice, and of options the most */
    const int64_t *head_options; /* [head_option_count] of MHA_CHOICE_OPTIONS */
    int64_t head_option_count;
} mha_model_attention;

/* What the checkpoint is. Lives as long as the model. */
typedef struct mha_model_info {
    const char *family;                                              /* model_type, "llama" */
    int64_t layers, heads, kv_heads, head_dim, hidden, intermediate; /* as config.json has them */
    int64_t vocab, max_positions, type_vocab;
    int64_t parameters;             /* numbers in the weights that the model uses */
    int64_t bytes;                  /* of those in the file, or in the one that mha_model_save writes */
    int64_t kv_bytes_per_token;     /* f32; 0 for encoders */
    const int64_t *heads_per_layer; /* [layers] fewer than heads where heads were pruned: see below */
    int causal;                     /* 1 for decoders */
    mha_dtype dtype;                /* of the stored weights */
    int logits;                     /* 1 if the forward pass has logits to give */
    /* [layers] heads of keys and of values that the weights of a layer have: see below */
    const int64_t *key_heads_per_layer, *value_heads_per_layer;
    const int64_t *feed_forward_per_layer; /* [layers] its width; 0 where a layer is attention alone: see below */
    const mha_model_attention *attention_per_layer; /* [layers] */
    int64_t original_heads; /* of the unpruned model: more than heads where all layers were pruned alike, see below */
} mha_model_info;
MHA_API const mha_model_info *mha_model_describe(const mha_model *model);

/* A pruned checkpoint has the rows and columns of the kept heads only. The key "mha.heads" of config.json lists them
 * for each layer by their original numbers, ascending, in whole groups where key heads are shared. A tensor of another
 * shape than config.json asks for is refused. Where all layers of a pruned model have the same number of heads and the
 * family has keys to say so (num_attention_heads, num_key_value_heads, head_dim: all families but BERT and GPT-2,
 * whose heads are hidden_size / num_attention_heads wide), these keys hold that number, so that transformers loads the
 * model, and "mha.original_heads" is the number before, which those of "mha.heads" are less than.
 *
 * The key "mha.kv_heads": {"keys": N, "values": M} says how many heads of keys and of values the tensors of a layer
 * have, where the family's own keys cannot: in BERT and GPT-2, where the two differ, or where layers do (lists with a
 * number for each layer in place of N and M). Each divides the heads of the layer; of H heads, head h reads key head
 * h / (H / N), and value head h / (H / M). "mha.heads" then lists the original numbers of the heads in the order in
 * which they stand, which may be any. num_key_value_heads keeps what it was. Where N and M differ, each head is
 * repeated behind the projection, and a cache holds their least common multiple of both.
 *
 * The key "mha.feed_forward": false, or a list of true and false for each layer, says which layers have a feed-forward
 * part. One without is attention alone, x = x + attention(norm(x)) in a decoder (Elhage et al. 2021): it has no tensors
 * of a feed-forward part, and of its norms that around attention only. transformers does not know the key, and cannot
 * load such a checkpoint: it would fill the missing parts with random weights.
 *
 * The key "mha.attention" gives layers another attention than the family's: a list with an entry for each layer, or one
 * entry for all. An entry is null, or an object of:
 *     "window": N       a row sees the N latest tokens, itself included (encoders: fewer than N away); null = all
 *     "rotary": bool    q and k are rotated, by the config's rope_theta and rope_scaling; false: no positions (NoPE)
 *     "qk_norm": bool   RMSNorm of each head of q and k, before rotation: tensors q_norm and k_norm, as in Qwen3
 *     "alibi": bool     scores less |i - j| times a slope of each head (Press et al. 2022); a head keeps its slope when
 *                       others are removed
 *     "scale": number   of scores; null = 1 / sqrt(head_dim)
 *     "softcap": number scores become softcap tanh(score / softcap), as in Gemma-2; null = they do not
 *     "moe_heads": {"top_k": N}
 *                       a mixture of experts, which are the heads: each text gets the N [2] whose scores are greatest,
 *                       weighed by the softmax of these (MHA_CHOICE_EXPERTS of layer.h)
 *     "head_pruning": {"prune_ratio": R, "selection": S}
 *                       each text gets (int)(heads (1 - R)) heads, in double, which must leave one; their gates are the
 *                       sigmoid of their scores (S "soft", the default), or 1: with a gradient as if they were that
 *                       ("straight_through"), or none ("hard", as published) (MHA_CHOICE_HEADS)
 *     "adaptive_heads": {"head_options": [1, 2, 4], "predictor_width": P, "selection": S}
 *                       each text gets one of 1 to 16 numbers of heads, which cut the columns of the layer's heads into
 *                       widths up to MHA_HEAD_DIM_MAX, by a predictor P [128] wide; all have one gate, the softmax of
 *                       the scores or 1, by S (MHA_CHOICE_OPTIONS). Not with rotary, qk_norm, alibi or shared keys
 * The last three are for encoders, since the scores are of the mean of all tokens: in a decoder, of those to come as
 * well. They have tensors of their own, head_choice, and head_choice_hidden of a predictor. Heads of such layers are
 * measured and drawn as all others, but not removed (prune.h), regrouped or closed by gates that learn. A model
 * with adaptive_heads in some layer gives nothing of single heads: their number is another for each text.
 * What an entry leaves out is as the family's own keys have it (layer_types, sliding_window, attn_logit_softcapping,
 * query_pre_attn_scalar ...). How many heads a layer has, "mha.heads" says, and how they share keys and values (MHA,
 * GQA, MQA) "mha.kv_heads", in new models too. transformers knows none of these keys: it loads such a checkpoint
 * without a word, and computes the family's attention. */

/* config.json as it was read, UTF-8 JSON. */
MHA_API const char *mha_model_config_json(const mha_model *model);

/* The model's tokenizer; NULL if it was opened without. */
MHA_API const mha_tokenizer *mha_model_tokenizer(const mha_model *model);

/* ---- decoding: what earlier calls have seen ---- */

/* Keys and values of B sequences in every layer, in pages (cache.h). Layers with a window keep no more than it. */
typedef struct mha_model_cache mha_model_cache;

typedef struct mha_model_cache_options {
    size_t size;
    int64_t batch;     /* B   0 = 1 */
    int64_t tokens;    /* room for each sequence; 0 = max_positions. Memory is touched as it is used */
    mha_dtype dtype;   /* stored as f32 (default), bf16 (default of a model opened in bf16), f16 or q8_0 */
    int64_t page_size; /* as in mha_cache_desc */
} mha_model_cache_options;

/* `model` must outlive the cache. MHA_ERR_UNSUPPORTED for an encoder. */
MHA_API mha_status mha_model_cache_create(const mha_model *model, const mha_model_cache_options *options,
                                          mha_model_cache **out, mha_error *err);
MHA_API void mha_model_cache_free(mha_model_cache *cache);

/* Tokens that a sequence holds; -1 for none of the cache. Bytes of all layers. */
MHA_API int64_t mha_model_cache_length(const mha_model_cache *cache, int64_t sequence);
MHA_API size_t mha_model_cache_bytes(const mha_model_cache *cache);
/* As mha_cache_clear, _truncate and _fork, in every layer: `to` shares the first `length` tokens of `from`. */
MHA_API mha_status mha_model_cache_clear(mha_model_cache *cache, int64_t sequence, mha_error *err);
MHA_API mha_status mha_model_cache_truncate(mha_model_cache *cache, int64_t sequence, int64_t length, mha_error *err);
MHA_API mha_status mha_model_cache_fork(mha_model_cache *cache, int64_t from, int64_t to, int64_t length,
                                        mha_error *err);

/* ---- the forward pass ---- */

/* B sequences of L tokens, padded to the same length. Any mask is allowed, also one with holes: a masked token is seen
 * by nobody, whatever its id. Positions are 0 .. L-1 whatever the mask says, if none are given. */
typedef struct mha_model_input {
    size_t size;
    int64_t batch, length;
    const int32_t *ids;       /* [B, L] 0 <= id < vocab, also under the mask */
    const int32_t *type_ids;  /* [B, L] 0 <= type < type_vocab, 0 where there are no types; NULL = 0 */
    const uint8_t *mask;      /* [B, L] non-zero = real token, 0 = padding; NULL = all real */
    const int32_t *positions; /* [B, L] >= 0, below max_positions where they are learned; NULL = 0 .. L-1 */
    /* The tokens follow those that the cache holds, and join them; positions count on. Decoding token by token, or a
     * prompt in pieces, has the bits of the whole at once. B is that of the cache; a mask may only be padding at the
     * end, and may leave a sequence without a token. After a failure the cache is empty. */
    mha_model_cache *cache;
    int64_t sequence; /* with batch 1 and a cache of several: which of its sequences this is */
    /* Sequences of any lengths one behind another, so that nothing is computed for padding: sequence b is tokens
     * starts[b] to starts[b + 1] of ids [starts[B]], and arrays [B, L] have that many rows everywhere. `length` is not
     * read; no mask or cache. Same bits as alone. */
    const int64_t *starts; /* [B + 1] ascending from 0, no sequence empty; NULL = padded to one length */
    /* [layers, B, H] factors on each head's output, per sequence: 0 removes a head, NULL = ones. A layer that has fewer
     * than H heads reads the first of them. */
    const float *gates;
    /* [layers, H, D] added to each head's gated output of every token: with a gate of 0 and the mean of the head's
     * output over some data this is mean ablation, the head gone but for what it says on average. NULL = zeros. A layer
     * that has fewer than H heads reads the first of them. */
    const float *fills;
    /* The pass begins at layer `first_layer`, and `hidden` [B, L, E] is what that layer reads: on_hidden's entry of
     * this number. The layers below do not run, ids and type_ids are not read and may be NULL; all else is as in the
     * whole pass, positions too, and so are the bits. What the layers below would show (on_hidden's entries, maps) is
     * not shown. `hidden` may be exactly last_hidden of the output, which takes its place; rows of masked tokens may
     * hold anything. NULL, with 0 = from the ids; with a cache `first_layer` is 0: every layer must see the tokens. */
    int64_t first_layer;
    const float *hidden;
    /* [B, L, heads D] of the heads that layer `first_layer` has: what its output projection reads, as on_activations
     * has shown it, and perhaps changed since. That layer then computes no queries, keys, values or attention, and its
     * gates and fills are not read. With `hidden` alone, and nothing of the attention asked for. NULL = computed. */
    const float *context;
} mha_model_input;

/* One head of one layer. */
typedef struct mha_model_head {
    int32_t layer, head;
} mha_model_head;

/* The attention of one layer in numbers of its rows and keys, without its maps: stats.h says what each is. Packed
 * sequences (starts) have their rows one behind another: [heads, starts[B]] in place of [B, heads, L], and of
 * [B, heads, K] too. Rows and keys of masked tokens hold no meaning, and count in no number of the others. */
typedef struct mha_model_stats {
    int64_t layer, heads, keys;                        /* the heads that this layer has; K */
    const float *row_entropy, *row_max, *row_distance; /* [B, heads, L] in bits, 0..1, and tokens */
    const int64_t *row_argmax;                         /* [B, heads, L] the key of row_max */
    const float *received;                             /* [B, heads, K] of each key, from the rows of this call */
    const float *top_prob;                             /* [B, heads, L, top_keys] the greatest; NULL without top_keys */
    const int64_t *top_key;                            /* [B, heads, L, top_keys] their keys */
} mha_model_stats;

/* What the attention of one layer holds between its projections, of all tokens of the call: rows are [B, L], or those
 * of packed sequences (starts). Numbers are f32; in a model of 16 bit q, k, v and c are those that it rounded to. With
 * c the output of the operator for a head, softmax(q k^T) v:
 *
 *     context of a head = gate c + fill         (c itself without gates and fills; of a layer that chooses heads for
 *                                                each text, its gate is in it as well)
 *     out = context Wo^T + bo
 *
 * Query head h reads key head h / (heads / kv_heads). Rows of masked tokens hold no meaning. With a cache k and v are
 * those of this call, before they are stored. */
typedef struct mha_model_activations {
    int64_t layer, rows, heads, kv_heads, head_dim; /* the heads that this layer has */
    const float *input;                             /* [rows, E] what q, k and v are made of: behind the pre-norm */
    const float *q;                                 /* [rows, heads head_dim] normed and rotated, `stride` apart */
    const float *k, *v;                             /* [rows, kv_heads head_dim] likewise */
    int64_t stride;                                 /* numbers from a row of q, k or v to the next */
    const float *context;                           /* [rows, heads head_dim] what the output projection reads */
    const float *out; /* [rows, E] what it gives; a residual, and norms behind it, come later */
} mha_model_activations;

/* What is wanted; NULL fields are not computed. The callbacks run on the calling thread, layer by layer, so that
 * nothing larger than one layer's maps is ever held; what they are given is valid during the call only. A callback that
 * returns non-zero stops the forward pass with MHA_ERR_CANCELLED. Rows of masked tokens hold no meaning;
 * after a failure all outputs are unspecified. */
typedef struct mha_model_output {
    size_t size;
    float *last_hidden; /* [B, L, E]; of decoders after the final norm */
    float *pooled;      /* [B, E] tanh pooler of BERT; MHA_ERR_UNSUPPORTED if the checkpoint has none */
    float *logits;      /* [B, L, vocab]; MHA_ERR_UNSUPPORTED for a checkpoint without them */
    float *last_logits; /* [B, vocab] of each sequence's last real token: what comes next */
    /* x [B, L, E]: entry 0 is the embeddings (behind BERT's norm of them), entry n the output of layer n - 1, the last
     * one after the final norm. So an entry below the last is what the layer of its number reads. */
    int (*on_hidden)(void *user, int64_t entry, const float *x);
    /* probs [B, heads, L, K] of one layer; `heads` is the number of heads that this layer has, or those of map_heads.
     * K, the keys, is L; with a cache L and the tokens that the longest sequence of the call had in it before; with
     * starts maps are [B, heads, M, M] of the longest sequence, and 0 beyond a shorter one. */
    int (*on_attention)(void *user, int64_t layer, int64_t heads, const float *probs);
    void *user;
    /* The heads whose maps are wanted: layers in ascending order, and probs has those of a layer in the order of the
     * list. on_attention is called for these layers alone. NULL = all of all. on_rows is shown these heads too. */
    const mha_model_head *map_heads;
    int64_t map_count;
    /* [B, map_row_count] The rows that are wanted of each sequence, in place of L: counted from its first row of this
     * call, or from behind its last one (-1 is that). They may come in any order; where a sequence has no such row, and
     * only there, probs are 0. Rows that nobody asks for cost nothing. NULL = all. */
    const int64_t *map_rows;
    int64_t map_row_count;
    /* Statistics of every layer, behind on_attention: what head measures need of long sequences, where maps of L x K
     * would not fit. The operator computes the scores once more for them (stats.h has the times). */
    int (*on_stats)(void *user, const mha_model_stats *stats);
    int64_t top_keys; /* 0..32 */
    /* Queries, keys, values and head outputs of every layer, behind on_stats. */
    int (*on_activations)(void *user, const mha_model_activations *a);
    /* Rows of probabilities of one layer, shown and forgotten, so that memory grows with the longest sequence and not
     * with its square: stats.h says in which order they come. All rows of real tokens, or those of map_heads and
     * map_rows; b is the sequence, as with starts. Unlike the others it is called from all threads of the context, and
     * cannot stop the pass. */
    void (*on_rows)(void *user, int64_t layer, const mha_attn_rows *rows);
    /* [layers, B, H] written for the layers that run: 1 = the sequence has that head computed, 0 = not, or the layer
     * has no such head. All are, but in layers that choose heads for each text: those that it gets, and
     * all where it gets another number of them. */
    uint8_t *kept;
} mha_model_output;

/* Runs the model. `output` may be NULL. Allocates twice, however many layers there are: a plan of the operator (another
 * where the next layer is not alike, or shows another number of heads, or for each sequence where their number changes
 * from text to text), and the memory of the pass. A sequence's
 * numbers have the same bits alone, in a batch, padded, and on any number of threads.
 * Errors: MHA_ERR_ARG for a length beyond max_positions, where positions are learned, or an id outside the vocabulary
 * (all are checked before the first layer runs), MHA_ERR_UNSUPPORTED, MHA_ERR_MEMORY, MHA_ERR_CANCELLED.
 * Cost: 2 operations per dense weight and token, and the operator's own; where maps, rows or statistics are all that is
 * asked for, the last layer ends at its attention. Memory beside the pass: with on_attention
 * B heads L K floats for the layer with most heads, with on_stats 20 bytes for each head and row, 4 for each head and
 * key, and 12 for each of top_keys, with on_activations 2 E + 2 (H + Hkv) D floats for each token. The outputs have the
 * same bits, whatever else is asked for. */
MHA_API mha_status mha_model_forward(const mha_model *model, const mha_model_input *input,
                                     const mha_model_output *output, mha_error *err);

typedef enum mha_pool { MHA_POOL_MEAN = 0, MHA_POOL_CLS } mha_pool;

typedef struct mha_embed_options {
    size_t size;
    mha_pool pool;    /* mean over the real tokens, or the first one */
    int no_normalize; /* 1 = do not scale to length 1 */
} mha_embed_options;

/* One vector per text: out [count, E]. `options` may be NULL. Texts are terminated UTF-8 (so without NUL); one of more
 * tokens than the model takes (max_positions) is cut there, with a warning in the context's log: "text 3 of 7: 600
 * tokens, 88 were cut off; the model takes 512". Run in batches without padding; the vector of a text does not
 * depend on the others, to the bit. Reports progress as "embed". Errors: MHA_ERR_ARG, naming the text, for one
 * that is NULL, not UTF-8 or without tokens; MHA_ERR_MEMORY, MHA_ERR_CANCELLED. */
MHA_API mha_status mha_model_embed(const mha_model *model, const char *const *texts, int64_t count,
                                   const mha_embed_options *options, float *out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif

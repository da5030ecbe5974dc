/* head_data.h - tokenized texts for measuring heads: created once, read by every measure.
 *
 * The tokens of all texts are kept in memory, which takes 9 bytes per token. Measures run the model on packed texts,
 * longest first (in the given order if equally long). Padding therefore takes no time, and insufficient memory is
 * detected at the start. Results are bitwise identical for any batch size.
 *
 *     mha_head_data *data;
 *     mha_head_data_of_texts(model, texts, count, NULL, &data, &err);
 *     mha_heads_measure_data(model, data, NULL, &heads, &err);
 */
#ifndef MHA_HEAD_DATA_H
#define MHA_HEAD_DATA_H

#include "mha/model.h"
#include "mha/work.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tokenized texts. Immutable: any number of threads and measures may read it concurrently. */
typedef struct mha_head_data mha_head_data;

typedef struct mha_head_data_options {
    size_t size;
    int64_t max_tokens; /* longer texts are truncated; 0 = the model's maximum, with a warning in the log */
    /* Maximum number of tokens that run together (a longer text runs alone); 0 = 2048, so that a layer's output
     * stays in the CPU caches. It does not affect the results. */
    int64_t batch_tokens;
    /* [special_count] Ids that count as special tokens, in addition to the ids that the tokenizer adds to a text: for
     * example [CLS] or BOS if the model has no tokenizer. */
    const int32_t *special;
    int64_t special_count;
    /* [starts[count]], for mha_head_data_of_ids: the segment of each token (sentence, turn, document), any values; NULL
     * = none. Read by the metric "block" of heads.h, and as token types by models with several types (BERT: 0 and
     * 1). */
    const int32_t *segments;
    /* Divides the measurements of the data among several processes (work.h), each of which makes the same calls; every
     * process gets results bitwise identical to those of a single process. The `state` of a measurement is then passed
     * to `work`. Calls that are not measurements, such as a rollout or the refit of an edited model, run in every
     * process. The struct is copied; work->user must outlive the data. NULL = a single process. */
    const mha_work *work;
} mha_head_data_options;

/* Tokenizes `count` texts, NUL-terminated UTF-8, adding the special tokens of the model's tokenizer. The model's
 * context must outlive the data; the model and the texts need not. Any model with the same vocabulary, such as a pruned
 * one, can be measured on the data. Measures return MHA_ERR_ARG for a model whose tokenizer has other texts for the ids
 * of the data; if one of the two models has no tokenizer, only the range of the ids is checked. `options` may be NULL.
 * Errors: MHA_ERR_ARG if there are no texts, for a text that is NULL, not UTF-8 or without tokens (naming it), and for
 * a model without a tokenizer; MHA_ERR_MEMORY. */
MHA_API mha_status mha_head_data_of_texts(const mha_model *model, const char *const *texts, int64_t count,
                                          const mha_head_data_options *options, mha_head_data **out, mha_error *err);

/* Creates the data from token ids, which are copied: text i is ids[starts[i]] to ids[starts[i + 1] - 1], with starts
 * [count + 1] strictly ascending from 0. A text that is too long is truncated at its end. The model's tokenizer
 * determines which tokens are special, separators or punctuation; without a tokenizer, only options.special are
 * special. Errors: MHA_ERR_ARG for starts that do not ascend and for an id outside the vocabulary, naming text and
 * value; MHA_ERR_MEMORY. */
MHA_API mha_status mha_head_data_of_ids(const mha_model *model, const int32_t *ids, const int64_t *starts,
                                        int64_t count, const mha_head_data_options *options, mha_head_data **out,
                                        mha_error *err);
/* Creates the data from images, for a model that reads images (vision.h): pixels [count, channels, height, width],
 * which are copied. Each image is a text of max_positions tokens, whose ids are their positions: 0 is the class
 * token, which counts as special. `options` must have no `segments` and `special`. mha_heads_measure_data,
 * mha_head_rollout, mha_importance_measure, mha_importance_pairs and the mean fill of mha_prune accept these data for
 * a model with images of the same size, and return MHA_ERR_ARG for other models; other measures return
 * MHA_ERR_UNSUPPORTED. Errors: MHA_ERR_ARG; MHA_ERR_UNSUPPORTED for a model of texts; MHA_ERR_MEMORY. */
MHA_API mha_status mha_head_data_of_images(const mha_model *model, const float *pixels, int64_t count,
                                           const mha_head_data_options *options, mha_head_data **out, mha_error *err);
/* Creates the data from source/target pairs, for an encoder-decoder (seq2seq.h). Text i is what the decoder reads and
 * predicts: its first token (mha_model_shift_labels), then the tokens of targets[i], with the special tokens of the
 * tokenizer; its loss is the cross entropy of the tokens of the target, given sources[i] and the tokens before.
 * max_tokens applies to sources and targets. mha_importance_measure, mha_models_compare, mha_model_edit_evaluate,
 * mha_prune_search, and the joint choice, fill and refit of prune.h accept these data, and return MHA_ERR_ARG for other
 * data of an encoder-decoder, and for pairs of other models; other measures return MHA_ERR_UNSUPPORTED for pairs.
 * Errors: those of mha_head_data_of_texts; MHA_ERR_UNSUPPORTED for other models, and for one whose sources are
 * audio. */
MHA_API mha_status mha_head_data_of_pairs(const mha_model *model, const char *const *sources,
                                          const char *const *targets, int64_t count,
                                          const mha_head_data_options *options, mha_head_data **out, mha_error *err);
/* The same for token ids: starts as in mha_head_data_of_ids. `ids` are labels, without the first token of the
 * decoder. */
MHA_API mha_status mha_head_data_of_id_pairs(const mha_model *model, const int32_t *source_ids,
                                             const int64_t *source_starts, const int32_t *ids, const int64_t *starts,
                                             int64_t count, const mha_head_data_options *options, mha_head_data **out,
                                             mha_error *err);
MHA_API void mha_head_data_free(mha_head_data *data);

/* Creates a copy of the data with masked tokens, for MHA_LOSS_MLM (importance.h): the mask token of the model's
 * tokenizer replaces each token that is not special with a probability of 0.15 (Devlin et al. 2019). labels
 * [mha_head_data_tokens] receives the id of each masked token, and MHA_IGNORE for the other tokens, text by text. The
 * same seed masks the same tokens. Errors: MHA_ERR_ARG for a model without a mask token; MHA_ERR_MEMORY. */
MHA_API mha_status mha_head_data_mask(const mha_model *model, const mha_head_data *data, uint64_t seed, int32_t *labels,
                                      mha_head_data **out, mha_error *err);

/* Return the number of texts, and the total number of tokens after truncation. */
MHA_API int64_t mha_head_data_count(const mha_head_data *data);
MHA_API int64_t mha_head_data_tokens(const mha_head_data *data);
/* Returns the tokens of text `text`, in the given order; *length (may be NULL) gets their count. Returns NULL and 0
 * if out of range. */
MHA_API const int32_t *mha_head_data_ids(const mha_head_data *data, int64_t text, int64_t *length);

#ifdef __cplusplus
}
#endif
#endif

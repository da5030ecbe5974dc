/* seq2seq.h - encoder-decoders: models that write a text for a source, such as a translation, a summary or the
 * transcript of speech.
 *
 *     mha_model_open(NULL, folder, NULL, &model, &err);                    the decoder; it owns the encoder
 *     const mha_model_input source = { .size = sizeof source, .batch = 1, .length = S, .ids = source_ids };
 *     const mha_model_input input = { .size = sizeof input, .batch = 1, .length = T, .ids = ids, .source = &source };
 *     mha_model_forward(model, &input, &output, &err);
 *
 * The model that mha_model_open returns is the decoder: its description, hidden states, maps, logits and gradients are
 * those of the decoder, and its text begins with the token decoder_start of mha_model_info. The encoder is a model too,
 * without logits. It reads the source, and the cross-attention of every decoder layer reads its last hidden states.
 * In `input` above, the encoder runs first. With a cache, keys and values of the source are computed once, with the
 * first tokens, and read by every later call.
 *
 * The source of Whisper is audio: mha_model_input.features instead of ids (audio.h), with the whole length that the
 * encoder accepts and without a mask. Its encoder has no tokens, so functions that run texts return MHA_ERR_ARG for it.
 *
 * Masks of the source are those of mha_model_input: masked tokens are invisible to encoder and decoder. Each sequence
 * of a source needs at least one real token. Results are bitwise identical alone, in a batch, padded, packed (`starts`
 * of both inputs), and with a cache.
 *
 * Supported: forward, generate.h, model_grads.h (without dropout), prune.h, and mha_model_save; importance.h,
 * compare_models.h and prune_search.h on source/target pairs (mha_head_data_of_pairs); for the encoder, which is a
 * model of its own, also mha_model_embed and the analysis of heads on texts. Training, regrouping heads, ranks
 * (model_ranks.h) and new models (model_create.h) return MHA_ERR_UNSUPPORTED. Functions that run texts through a
 * decoder return MHA_ERR_ARG for the decoder, since they pass no source. */
#ifndef MHA_SEQ2SEQ_H
#define MHA_SEQ2SEQ_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the encoder of an encoder-decoder, valid as long as `model`; it must not be freed. NULL for other models. */
MHA_API const mha_model *mha_model_encoder(const mha_model *model);

/* Computes the input ids [B, T] of the decoder from labels [B, T]: the labels moved right by one token, after the
 * family's first token. MHA_IGNORE becomes the padding token. The first token is decoder_start; in mbart it is the last
 * label that is not padding: the language code. Token i of the decoder then predicts label i (mha_model_loss_args).
 * Errors: MHA_ERR_ARG, also for a label outside the vocabulary; MHA_ERR_UNSUPPORTED unless the model is an
 * encoder-decoder with a padding token. */
MHA_API mha_status mha_model_shift_labels(const mha_model *model, const int32_t *labels, int64_t batch, int64_t length,
                                          int32_t *ids, mha_error *err);

/* Scores a text, given its source: logprob[i] = log p(ids[i] | source, ids[0 .. i - 1]), natural logarithm, for
 * i = 0 .. count - 1. `ids` are labels: the first token of the decoder is that of mha_model_shift_labels. Runs in
 * chunks through a cache. Errors: those of mha_model_forward, and MHA_ERR_UNSUPPORTED unless the model is an
 * encoder-decoder with logits. */
MHA_API mha_status mha_model_score_target(const mha_model *model, const int32_t *source, int64_t source_count,
                                          const int32_t *ids, int64_t count, float *logprob, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif

/* token_times.h - when the words of a transcript are spoken: aligns the tokens of a decoder with the audio that its
 * cross-attention reads.
 *
 *     const mha_token_times_options o = { .size = sizeof o, .prompt = 4, .frames = count / MHA_AUDIO_HOP };
 *     mha_model_token_times(model, features, ids, id_count, &o, seconds, &err);
 *
 * Some heads of a speech model attend to the audio of the token that they read. Their maps come from the fused kernel:
 * only the maps of these heads are computed, in one pass over the finished text, so that generation keeps its speed. As
 * in transformers (WhisperForConditionalGeneration with return_token_timestamps), each map is normalized over its
 * tokens, smoothed by a median filter over time, and averaged with the others; dynamic time warping (Sakoe and Chiba
 * 1978) then finds the path through audio and tokens with the largest sum. */
#ifndef MHA_TOKEN_TIMES_H
#define MHA_TOKEN_TIMES_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_token_times_options {
    size_t size;
    int64_t prompt; /* number of leading tokens that are not aligned: decoder_start, language, task */
    int64_t frames; /* frames of audio; the rest of the features is padding. 0 = all */
    /* [head_count] heads of the decoder, with layers ascending. NULL = alignment_heads of generation_config.json,
     * without removed heads (an error if all are removed), or, if it has none, all heads of the upper half of the
     * layers */
    const mha_model_head *heads;
    int64_t head_count;
    int64_t median_width; /* frames of the median filter, odd; 0 = median_filter_width of config.json, which is 7 by
                           * default */
} mha_token_times_options;

/* Computes the time [seconds] at which each token ids[prompt ..] begins: seconds [count - prompt], ascending, in steps
 * of 0.02. `ids` contains the prompt and the generated text without its end-of-text token. `features` are those of the
 * encoder [feature_bins, 2 max_positions]. Errors: MHA_ERR_ARG; MHA_ERR_UNSUPPORTED for a model whose encoder does not
 * read audio; those of mha_model_forward. Cost: one forward pass, and heads tokens frames / 2 floats of memory. */
MHA_API mha_status mha_model_token_times(const mha_model *model, const float *features, const int32_t *ids,
                                         int64_t count, const mha_token_times_options *options, double *seconds,
                                         mha_error *err);

#ifdef __cplusplus
}
#endif
#endif

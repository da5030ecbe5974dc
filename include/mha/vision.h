/* vision.h - models that read images: ViT (Dosovitskiy et al. 2021), which classifies images, and CLIP (Radford et al.
 * 2021), which embeds images and texts in one space.
 *
 *     mha_model_open(NULL, folder, NULL, &model, &err);
 *     const mha_model *vision = mha_model_vision(model);                  a ViT itself; the image tower of a CLIP model
 *     const mha_model_input input = { .size = sizeof input, .batch = B, .pixels = pixels };
 *     mha_model_forward(vision, &input, &output, &err);
 *
 * pixels are [B, channels, height, width], f32, already normalized; the dimensions are in mha_model_info. An image is
 * cut into patches, row by row from the top left; rows and columns at the end that do not fill a patch are ignored.
 * The sequence of a pass is the class token, then the patches: max_positions of mha_model_info is their number L, and
 * `length` of the input is 0 or L. Everything else is as for texts: hidden states, maps, statistics, activations, gates
 * and gradients. In vision models and in CLIP, the last entry of on_hidden is the output of the last layer, before the
 * final norm, as in transformers; last_hidden is taken after the final norm, which the image tower of CLIP lacks.
 *
 *     vit   pooled: the tanh pooler, if the checkpoint has one; logits [B, classes]: from the class token
 *     clip  pooled: the class token after post_layernorm; the text token that ends the text, after the final norm;
 *           embedding [B, embedding_width]: the projection of pooled, L2-normalized
 *
 * The model that mha_model_open returns for a CLIP model is its text tower: a causal encoder of token ids without
 * logits, which owns the image tower. Each tower is a model of its own; mha_model_embed of the text tower returns the
 * vectors that are compared with those of images. A folder with one tower only (clip_text_model, clip_vision_model) is
 * a model with that tower. The text that is pooled ends at the first eos_token_id; in old files, where eos_token_id is
 * 2, at the largest id.
 *
 * mha_model_grads_list of the text tower contains the gradients of both towers. Heads of each tower can be removed
 * (prune.h). Training, generation, ranks (model_ranks.h) and, for CLIP, regrouping heads and new models
 * (model_create.h) return MHA_ERR_UNSUPPORTED. Functions that read token ids return MHA_ERR_UNSUPPORTED for vision
 * models. */
#ifndef MHA_VISION_H
#define MHA_VISION_H

#include "mha/image.h"
#include "mha/model_grads.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the model that reads images, valid as long as `model`; it must not be freed: `model` itself if it reads
 * images, the image tower of a CLIP model, NULL for other models. */
MHA_API const mha_model *mha_model_vision(const mha_model *model);

/* Computes logits [image_count, text_count] = exp(logit_scale) times the dot product of each image with each text, from
 * L2-normalized embeddings images [image_count, P] and texts [text_count, P]. Their softmax over the texts is the
 * probability that a text describes an image. Errors: MHA_ERR_ARG, MHA_ERR_UNSUPPORTED unless `model` is the text tower
 * of a CLIP model. */
MHA_API mha_status mha_clip_logits(const mha_model *model, const float *images, int64_t image_count, const float *texts,
                                   int64_t text_count, float *logits, mha_error *err);

/* Writes the pixels [channels, height, width] of an image for a model that reads images, as preprocessor_config.json of
 * its folder says (or the object image_processor of processor_config.json). As in transformers, in this order:
 *
 *     do_resize       to `size`: height and width, or the shorter side (shortest_edge; the other side is rounded down).
 *                     resample 1, 2, 3 = Lanczos, bilinear, bicubic: first rows are resampled, then columns, each as by
 *                     Pillow, bit by bit (Pillow 13 resamples columns first where that is faster)
 *     do_center_crop  to `crop_size`; a smaller image is padded with zeros, with the odd row or column at the end
 *     do_rescale      multiplies by rescale_factor (1/255)
 *     do_normalize    subtracts image_mean and divides by image_std, per channel
 *
 * Keys that are absent have the defaults of the class: ViTImageProcessor or CLIPImageProcessor. Errors: MHA_ERR_ARG;
 * MHA_ERR_UNSUPPORTED if the folder has no such file, for other classes and filters, models without 3 channels, and a
 * result that does not have the model's size; MHA_ERR_MEMORY. */
MHA_API mha_status mha_image_prepare(const mha_model *model, const mha_image *image, float *pixels, mha_error *err);

typedef struct mha_clip_loss_args {
    size_t size;
    /* B texts and B images; image n belongs to text n. As for mha_model_grads_forward of each tower. */
    const mha_model_input *texts, *images;
    /* [layers, B, H] written: gradients of the gates of each tower, as in mha_model_gradient; NULL = not computed */
    float *text_gates, *image_gates;
    int loss_only; /* 1 = no backward pass */
} mha_clip_loss_args;

/* Computes CLIP's loss of a batch, and accumulates its gradients into the list of `grads`, which was created for the
 * text tower: the mean of two cross entropies, of the text that belongs to each image and of the image that belongs to
 * each text. The loss is summed in double. Errors: those of mha_model_grads_forward and mha_model_grads_backward. */
MHA_API mha_status mha_clip_loss(mha_model_grads *grads, const mha_clip_loss_args *args, double *loss, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif

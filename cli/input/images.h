/* images.h - image files as arguments of commands. In a model that reads images, an argument that ends in .png, .jpg or
 * .jpeg names an image file. */
#ifndef CLI_INPUT_IMAGES_H
#define CLI_INPUT_IMAGES_H

#include "input/input.h"

/* Returns true if an argument ends like the name of an image file. */
bool cli_names_image(const char *text);
/* Returns true if an argument names an image for this model. */
bool cli_is_image(const mha_model *model, const char *text);
/* Returns the model that reads the texts: the image tower of a CLIP model if they are all images, else `model`. If only
 * some of them are images, or texts are given to a ViT, prints an error and returns NULL. */
const mha_model *cli_tower_of(const cli_session *session, const mha_model *model, const cli_texts *texts);

/* Reads image files `path` [count] as pixels; the caller must free *pixels, even after an error. Returns an exit
 * code. */
int cli_images_read(const cli_session *session, const mha_model *vision, const char *const *path, int64_t count,
                    float **pixels);

/* Computes one vector per text or image, [texts, embedding_width], as mha_model_embed does. A ViT pools its last hidden
 * states. */
int cli_vectors_of(cli_session *session, const mha_model *model, const cli_texts *texts, const mha_embed_options *how,
                   float *out);

/* Returns the name of a class of an image classifier: that of config.json, or its number, written to `digits`. */
enum { CLI_CLASS_DIGITS = 24 };
const char *cli_class_name(const json_t *config, int64_t number, char digits[CLI_CLASS_DIGITS]);

#endif

/* route.h - heads chosen for each text at inference: a router looks at what a layer reads, and heads that it does not
 * choose are not computed.
 *
 *     mha_router *router;
 *     mha_router_fit(model, data, NULL, &router, NULL, &err); on calibration texts, without labels
 *     mha_router_save(router, model, "router.safetensors", 0, &err);
 *     mha_model_route(model, router, 9, &err);                from now on 9 heads of each layer run for each sequence
 *     mha_model_embed(model, ...);                            as does everything else that runs the model
 *
 * Definition. In each layer, with x what its queries, keys and values are made of (behind the pre-norm, where there is
 * one) and m the mean of x over the real tokens of a sequence, never over padding,
 *
 *     s = W m + b                                             W [H, E], b [H]: the layer's router
 *
 * and the K heads of greatest s are kept, of equal ones the first. Where heads share keys or values, they are kept in
 * whole groups: W and b have a row for each of the U groups of H / U heads, U the greatest common divisor of the
 * numbers of key and of value heads. A layer of fewer than K heads keeps all. Heads that are not kept are not computed:
 * neither their projections nor their attention, nor their columns of the output projection. The result has the bits of
 * gates of 0 for them (model.h), and with K = H those of the whole model; it is the same in any batch, padded or not,
 * and on any number of threads.
 *
 * Decoders decide at the first call that brings a sequence tokens: the heads stay the same for the sequence until its
 * cache is empty again, and a fork of it has them too. So the first call should bring the whole prompt, as
 * mha_model_generate does then (it shares no beginnings of prompts while a router is at work, and needs its cache);
 * mha_model_score decides by the first 64 tokens of the text. The cache has room for all heads, zeros for those
 * that a sequence has not kept: it is no smaller.
 *
 * Fitting is distillation: what a head is worth to a text is read off the model itself. Of encoders it is how far the
 * text's embedding (the mean of its last hidden states) is from what it is without the head, 1 - cos; of decoders with
 * logits half the squared length of the change of the log-probabilities of what follows the text per change of the
 * head's gate, from random vectors (loo and jacobian_probe of importance.h). Of a group it is the sum. W and b are the
 * ridge regression of log(worth + 1e-7) on m, inputs standardised:
 *
 *     b' = mean of the targets,    W' = (Z^T Z + ridge N I)^-1 Z^T (t - b'),    Z = (m - mean) / deviation
 *
 * with the ridge that foresees a held-out quarter of the texts best; then all texts are fitted with it. An infinite
 * ridge is among the candidates: W = 0, the same heads for every text, where the texts say no more than that.
 *
 * After: Jin et al. 2024 (mixture of heads: a router takes K of the heads), Michel et al. 2019 (gates), Hoerl & Kennard
 * 1970 (ridge regression). */
#ifndef MHA_ROUTE_H
#define MHA_ROUTE_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mha_head_data; /* head_data.h */

/* Immutable: any number of models of that shape may use it at once. */
typedef struct mha_router mha_router;

/* ---- at work ---- */

/* Sets the model's router and how many heads of each layer a sequence keeps: every later call that runs the model keeps
 * to it. `router` must live as long; NULL = all heads again. Nobody may run the model meanwhile, and caches made
 * before are refused afterwards. The first call packs the projections of queries, keys and values anew, head by head:
 * as many bytes, one layer at a time. Gradients of the model are refused while it has a router (MHA_ERR_UNSUPPORTED).
 * Errors: MHA_ERR_ARG for `heads` outside 1..H (H of the layer that has most), or no whole number of groups, and for a
 * router of another shape; MHA_ERR_UNSUPPORTED for a model that was opened in another dtype than f32;
 * MHA_ERR_MEMORY. */
MHA_API mha_status mha_model_route(mha_model *model, const mha_router *router, int64_t heads, mha_error *err);

/* ---- making one ---- */

typedef struct mha_router_fit_options {
    size_t size;
    int64_t probes; /* of decoders: random vectors for each text, 0 = 16; and their seed */
    uint64_t seed;
} mha_router_fit_options;

/* Fits a router on texts. `options` may be NULL. `fixed`, unless it is NULL, gets the router with W = 0 and b the means
 * of the targets: the same heads for every text, which is what a router is to be judged against. The model is not
 * changed, and must have no router. The same bits for any number of threads and any cut into batches. Errors:
 * MHA_ERR_ARG for NULL, for fewer than 8 texts; MHA_ERR_UNSUPPORTED as
 * for importance; MHA_ERR_MEMORY, MHA_ERR_CANCELLED ("importance", in texts).
 * Cost: a forward pass over the texts, what their importance costs (importance.h), and for each layer 8 Cholesky
 * factorisations, of as many unknowns as there are texts or numbers of the hidden size, whichever is less. Memory: 8
 * bytes for each text, layer and number of the hidden size. */
MHA_API mha_status mha_router_fit(const mha_model *model, const struct mha_head_data *data,
                                  const mha_router_fit_options *options, mha_router **out, mha_router **fixed,
                                  mha_error *err);

/* A router of numbers of one's own: for each layer N "router.N.weight" [U, E] and "router.N.bias" [U], f32 (see above),
 * and nothing else. They are copied. MHA_ERR_ARG names a tensor that is missing, unknown, of another shape or type, or
 * holds a number that is not finite. */
MHA_API mha_status mha_router_create(const mha_model *model, const mha_named_tensor *tensors, int64_t count,
                                     mha_router **out, mha_error *err);
MHA_API void mha_router_free(mha_router *router);

/* Its tensors, as above; they live as long as the router. */
MHA_API const mha_named_tensor *mha_router_tensors(const mha_router *router, int64_t *count);

/* ---- in files ---- */

/* Writes a safetensors file: these tensors, and the metadata "mha.router": "1" and "mha.weights": {file: sha256}, JSON:
 * names and digests of the files that `model` was opened from, which the router is good for and for no others. It
 * appears whole or not at all; an existing file is replaced with `overwrite` alone. A folder's own router is its file
 * "router.safetensors". Cost: all bytes of the weights are read once. Errors: MHA_ERR_ARG for a model of another shape,
 * MHA_ERR_IO, MHA_ERR_MEMORY, MHA_ERR_CANCELLED ("sha256", in bytes). */
MHA_API mha_status mha_router_save(const mha_router *router, const mha_model *model, const char *path, int overwrite,
                                   mha_error *err);

typedef struct mha_router_options {
    size_t size;
    int no_digest; /* 1 = weights are not read to compare their digests, nor the names of their files */
} mha_router_options;

/* Reads one for this model: `path` NULL = router.safetensors of the folder that the model was opened from. `options`
 * may be NULL. Errors: MHA_ERR_IO; MHA_ERR_FORMAT for a file that is no router, or not of this model, naming the
 * tensor, its shape, the number that is not finite or the file of other weights. Cost: as for saving. */
MHA_API mha_status mha_router_open(const mha_model *model, const char *path, const mha_router_options *options,
                                   mha_router **out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif

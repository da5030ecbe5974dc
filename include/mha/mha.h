/* mha.h - includes all public headers of mha, listed below in reading order. */
#ifndef MHA_H
#define MHA_H

/* clang-format off */

/* basics */
#include "mha/types.h"             /* status, error, data types, tensors in memory */
#include "mha/ctx.h"               /* context: threads, memory, log, progress, instruction set */

/* the operator */
#include "mha/attn.h"              /* attention: describe, plan, run */
#include "mha/cache.h"             /* paged KV cache */
#include "mha/attn_grads.h"        /* attention: backward pass */
#include "mha/stats.h"             /* attention statistics per row and key, in O(L) memory */
#include "mha/score_functions.h"   /* user functions of scores and masks */
#include "mha/machine_peak.h"      /* measured peak performance of this machine */

/* layers */
#include "mha/rng.h"               /* random numbers, bit-exact with PyTorch */
#include "mha/rope.h"              /* rotary position embedding */
#include "mha/layer.h"             /* linear, norm, activation, embedding, attention, block */
#include "mha/latent_attention.h"  /* latent attention (DeepSeek-V3) with a cache of latent vectors */
#include "mha/variants.h"          /* published variants of multi-head attention */

/* files and text */
#include "mha/io.h"                /* tensors in safetensors, GGUF and .npy files */
#include "mha/image.h"             /* PNG and JPEG files */
#include "mha/audio.h"             /* WAV files and log-mel features */
#include "mha/text.h"              /* tokenizers */
#include "mha/text_train.h"        /* training a tokenizer */

/* models */
#include "mha/model.h"             /* checkpoints: open, run, embed */
#include "mha/generate.h"          /* text generation with a decoder */
#include "mha/seq2seq.h"           /* encoder-decoders */
#include "mha/vision.h"            /* models of images, and CLIP */
#include "mha/token_times.h"       /* when the words of a transcript are spoken */
#include "mha/model_grads.h"       /* backward pass of a whole model */
#include "mha/model_create.h"      /* creating a model from a config */
#include "mha/model_save.h"        /* saving a model as a checkpoint folder */
#include "mha/model_ranks.h"       /* one model divided among several processes */

/* training */
#include "mha/train.h"             /* loss, optimizer, schedule, gates, teacher, resume */
#include "mha/train_data.h"        /* sequences from texts and token files: order, masking, digests */
#include "mha/train_store.h"       /* folder of a training run: lock, checkpoints, resuming */
#include "mha/train_log.h"         /* training log: one record per step, as JSON lines or CSV */
#include "mha/train_ranks.h"       /* callbacks for a training run on several processes */

/* heads */
#include "mha/head_data.h"         /* tokenized texts for measuring heads */
#include "mha/held_out.h"          /* texts to learn from, and held-out texts */
#include "mha/heads.h"             /* descriptions of heads: statistics, patterns, labels */
#include "mha/importance.h"        /* importance of heads: published scores, confidence intervals */
#include "mha/diversity.h"         /* similarity of heads: distances, clusters */
#include "mha/compare_models.h"    /* comparing two models on the same texts */
#include "mha/model_edit.h"        /* edited models: open, evaluate, save */
#include "mha/prune.h"             /* removing heads */
#include "mha/prune_search.h"      /* search for the number of heads that can be removed */
#include "mha/regroup.h"           /* converting MHA to GQA or MQA */
#include "mha/mean_interval.h"     /* mean and confidence interval of measurements */
#include "mha/work.h"              /* measurements divided among several processes */

/* circuits */
#include "mha/circuits.h"          /* circuits: patching, attribution, paths and knockout on a pair of prompts */
#include "mha/logit_lens.h"        /* predictions from the hidden state after each layer */
#include "mha/logit_attribution.h" /* parts of a logit that heads and feed-forward parts write */
#include "mha/weight_circuits.h"   /* circuits from the weights: singular values, copying, composition */

/* layouts */
#include "mha/head_layouts.h"      /* planning the heads of a new model */
#include "mha/layout_training.h"   /* training the variants of head layouts, to compare their losses */
#include "mha/host_layouts.h"      /* planning the hosts for a model */

/* Not included, because they belong to libmha_mpi and require MPI:
 * "mha/cluster.h"                    measurements, training and attention on several machines
 * "mha/cluster_model.h"              one text distributed over several machines */

/* clang-format on */

#ifdef __cplusplus
extern "C" {
#endif

#define MHA_VERSION_MAJOR 0
#define MHA_VERSION_MINOR 1
#define MHA_VERSION_PATCH 0

/* Returns the version of the library in use, such as "0.1.0"; it may be newer than the headers. */
MHA_API const char *mha_version(void);

#ifdef __cplusplus
}
#endif
#endif

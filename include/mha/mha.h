/* mha.h - includes every header of mha, and is their map: one line each, in reading order. */
#ifndef MHA_H
#define MHA_H

/* clang-format off */

/* what every function shares */
#include "mha/types.h"          /* status, error, data types, tensors in memory */
#include "mha/ctx.h"            /* context: threads, memory, log, progress, instruction set */

/* the operator */
#include "mha/attn.h"           /* attention: describe, plan, run */
#include "mha/attn_grads.h"     /* its backward pass */
#include "mha/cache.h"          /* KV cache in pages */
#include "mha/stats.h"          /* statistics of rows and keys in O(L) memory */
#include "mha/machine_peak.h"   /* the measured limits of this machine */

/* layers */
#include "mha/layer.h"          /* linear, norm, activation, embedding, attention, block */
#include "mha/rope.h"           /* rotary position embedding */
#include "mha/rng.h"            /* PyTorch's random numbers */
#include "mha/variants.h"       /* every published variant of multi-head attention */

/* files, text, models */
#include "mha/io.h"             /* safetensors and .npy */
#include "mha/text.h"           /* tokenizers */
#include "mha/text_train.h"     /* training a tokenizer */
#include "mha/model.h"          /* checkpoints: open, run, embed */
#include "mha/generate.h"       /* text from a decoder */
#include "mha/model_grads.h"    /* backward pass of a whole model */
#include "mha/model_create.h"   /* a new model from a config */
#include "mha/model_save.h"     /* a model as a checkpoint folder */

/* training */
#include "mha/train.h"          /* loss, optimizer, schedule, gates, teacher, resume */
#include "mha/train_data.h"     /* texts and token files as sequences, their order, masked tokens, digests */
#include "mha/train_store.h"    /* the folder of a run: lock, checkpoints, resuming */
#include "mha/train_log.h"      /* the log of a run: a record per step, as JSON lines or CSV */

/* heads */
#include "mha/head_data.h"      /* the texts that heads are measured on */
#include "mha/work.h"           /* a measurement that several processes share */
#include "mha/heads.h"          /* what each head does: statistics, patterns, labels */
#include "mha/importance.h"     /* how much each head matters */
#include "mha/diversity.h"      /* how similar heads are: distances, clusters */
#include "mha/model_edit.h"     /* an edited model: open, save */
#include "mha/prune.h"          /* removing heads */
#include "mha/prune_search.h"   /* how many heads can be removed */
#include "mha/regroup.h"        /* MHA to GQA or MQA */
#include "mha/compare_models.h" /* two models on the same texts */
#include "mha/head_layouts.h"   /* planning the heads of a new model */

/* clang-format on */

#ifdef __cplusplus
extern "C" {
#endif

#define MHA_VERSION_MAJOR 0
#define MHA_VERSION_MINOR 1
#define MHA_VERSION_PATCH 0

/* "0.1.0": of the library that runs, which may be newer than the header. */
MHA_API const char *mha_version(void);

#ifdef __cplusplus
}
#endif
#endif

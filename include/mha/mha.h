/* mha.h - the umbrella header: the version, and everything else under mha/. Start reading at attn.h. */
#ifndef MHA_H
#define MHA_H

#include "mha/attn.h"
#include "mha/attn_grads.h"
#include "mha/cache.h"
#include "mha/compare.h"
#include "mha/ctx.h"
#include "mha/diversity.h"
#include "mha/generate.h"
#include "mha/head_data.h"
#include "mha/heads.h"
#include "mha/importance.h"
#include "mha/io.h"
#include "mha/layer.h"
#include "mha/limits.h"
#include "mha/model.h"
#include "mha/model_create.h"
#include "mha/model_grads.h"
#include "mha/model_save.h"
#include "mha/plan.h"
#include "mha/prune.h"
#include "mha/regroup.h"
#include "mha/rng.h"
#include "mha/rope.h"
#include "mha/text.h"
#include "mha/text_train.h"
#include "mha/train.h"
#include "mha/train_data.h"
#include "mha/types.h"
#include "mha/variant.h"
#include "mha/variants.h"

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

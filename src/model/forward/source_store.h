/* source_store.h - keys and values of the sources of an encoder-decoder, in a cache or for one pass. The layers of the
 * decoder read them in their cross-attention. */
#ifndef MHA_MODEL_FORWARD_SOURCE_STORE_H
#define MHA_MODEL_FORWARD_SOURCE_STORE_H

#include "base/arena.h"
#include "model/model_struct.h"

typedef struct mha__sources {
    int64_t batch, tokens; /* number of sequences, and capacity of each */
    int64_t *lengths;      /* [batch] number of tokens up to the last real one; 0 = no source */
    uint8_t *mask;         /* [batch, tokens] 1 = real token */
    bool holes;            /* a source has a masked token before a real one */
    float *kv;             /* [layers, batch, tokens, 2 Hkv D] */
} mha__sources;

/* Allocates the arrays of `sources`, whose batch and tokens are set; kv only if `keys` is true. */
void mha__sources_lay_out(mha__arena *arena, const mha_model *m, bool keys, mha__sources *sources);
/* Returns the keys and values of a sequence in a layer; NULL without kv. */
float *mha__sources_at(const mha__sources *sources, const mha_model *m, int64_t layer, int64_t sequence);
/* Returns the elements of a sequence's keys and values in one layer. */
int64_t mha__sources_stride(const mha__sources *sources, const mha_model *m);
/* Removes the source of a sequence, or of all sequences (MHA_CACHE_ALL). Does nothing without sources. */
void mha__sources_clear(mha__sources *sources, int64_t sequence);
/* Copies the source of a sequence to another sequence. Does nothing without sources. */
void mha__sources_copy(mha__sources *sources, const mha_model *m, int64_t from, int64_t to);

#endif

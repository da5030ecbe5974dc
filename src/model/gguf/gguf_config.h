/* gguf_config.h - the state of the translation of a GGUF file's keys to config.json, and functions that write parts. */
#ifndef MHA_MODEL_GGUF_GGUF_CONFIG_H
#define MHA_MODEL_GGUF_GGUF_CONFIG_H

#include "io/gguf/gguf.h"
#include "io/json/json_write.h"
#include "mha/rope.h"
#include "model/gguf/gguf_parts.h"

typedef struct mha__gguf_config_writer {
    const mha_file *file;
    const mha__gguf_arch *arch;
    mha__json_writer w;
    int64_t hidden, heads, kv_heads, head_dim, layers;
    int64_t rotated; /* dimensions of a head */
    mha_error *err;
} mha__gguf_config_writer;

enum { MHA__GGUF_CONFIG_KEY = 120 };

/* Writes ARCH.SUFFIX to `key`, which it returns. */
const char *mha__gguf_config_key(const mha__gguf_arch *arch, const char *suffix, char key[MHA__GGUF_CONFIG_KEY]);

void mha__gguf_config_int(mha__gguf_config_writer *c, const char *key, int64_t value);
void mha__gguf_config_real(mha__gguf_config_writer *c, const char *key, double value);
void mha__gguf_config_text(mha__gguf_config_writer *c, const char *key, const char *value);

/* Returns the shortest decimal that is the same float32, which is what the config had before it was stored as f32. */
double mha__gguf_config_shortest(double value);

/* Copies a real number if the file contains it. Sets *found, which may be NULL, to true in this case. */
mha_status mha__gguf_config_copy(mha__gguf_config_writer *c, const char *suffix, const char *key, bool *found);

/* Writes rope_scaling (gguf_rope.c). `positions` is the context length. */
mha_status mha__gguf_config_rope(mha__gguf_config_writer *c, int64_t positions);

/* Finds the LLaMA 3 scaling with the frequency factors `factors` [head_dim / 2] (gguf_llama3.c). Returns false if there
 * is none. */
bool mha__gguf_llama3(const float *factors, int64_t head_dim, double theta, mha_rope_options *found);

/* Writes layer_types if the file states which layers have a window (gguf_rope.c). */
mha_status mha__gguf_config_windows(mha__gguf_config_writer *c);

#endif

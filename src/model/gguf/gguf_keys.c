/* gguf_keys.c - checks that no key of an architecture changes what the model computes in a way that config.json cannot
 * express. Unknown keys are refused, since they may be options of a newer format. */
#include "io/gguf/gguf.h"
#include "io/input_limits.h"
#include "model/gguf/gguf_model.h"
#include <stdio.h>
#include <string.h>

/* The architectures that may have a key. */
enum {
    DECODER = 1,
    GPT2 = 2,
    BERT = 4,
    WINDOW = 8, /* Gemma */
    EXPERTS = 16,
    FACTORS = 32, /* Granite */
    PHI = 64,
    ROTARY = 128, /* NomicBERT */
    SINKS = 256,  /* gpt-oss */
    SEQ2SEQ = 512,
    ALL = DECODER | GPT2 | BERT | SEQ2SEQ
};

typedef enum rule {
    FREE,   /* read by gguf_config.c, or without effect on the results */
    ZERO,   /* an option that is off if it is 0 */
    ONE,    /* a factor that must be 1 */
    CAUSAL, /* must be true */
    SERIAL, /* must be false */
    WIDE    /* a window, which must be 0 or cover all positions */
} rule;

static const struct {
    const char *suffix;
    unsigned archs;
    rule rule;
} keys[] = {
    {"context_length", ALL, FREE},
    {"embedding_length", ALL, FREE},
    {"block_count", ALL, FREE},
    {"feed_forward_length", ALL, FREE},
    {"attention.head_count", ALL, FREE},
    {"attention.head_count_kv", ALL, FREE},
    {"vocab_size", ALL, FREE}, /* the embeddings have the rows */
    {"tensor_data_layout", ALL, FREE},
    {"pooling_type", ALL, FREE}, /* vectors are pooled as the caller requests */
    {"expert_count", EXPERTS, FREE},
    {"expert_count", ALL, ZERO},
    {"expert_used_count", ALL, FREE},
    {"expert_feed_forward_length", EXPERTS, FREE},
    {"attention.scale", FACTORS, FREE},
    {"embedding_scale", FACTORS, FREE},
    {"residual_scale", FACTORS, FREE},
    {"logit_scale", FACTORS, FREE},
    {"attention.layer_norm_epsilon", ALL, FREE},
    {"attention.layer_norm_rms_epsilon", DECODER | SEQ2SEQ, FREE},
    {"attention.key_length", DECODER | SEQ2SEQ, FREE},
    {"attention.value_length", DECODER | SEQ2SEQ, FREE},
    {"attention.relative_buckets_count", SEQ2SEQ, FREE},
    {"decoder_block_count", SEQ2SEQ, FREE},
    {"decoder_start_token_id", SEQ2SEQ, FREE},
    {"rope.dimension_count", DECODER, FREE},
    {"rope.freq_base", DECODER | ROTARY, FREE},
    {"rope.scaling.type", DECODER, FREE},
    {"rope.scaling.factor", DECODER, FREE},
    {"rope.scaling.original_context_length", DECODER, FREE},
    {"rope.scaling.finetuned", DECODER, FREE},
    {"rope.scaling.yarn_beta_fast", DECODER, FREE},
    {"rope.scaling.yarn_beta_slow", DECODER, FREE},
    {"rope.scaling.attn_factor", PHI, FREE},
    {"rope.scaling.attn_factor", DECODER, ONE},
    {"rope.scaling.yarn_attn_factor", DECODER, ONE},
    {"rope.scaling.yarn_ext_factor", DECODER, ONE},
    {"rope.scale_linear", DECODER, ONE},
    {"attention.sliding_window", WINDOW | PHI | SINKS, FREE},
    {"attention.sliding_window", DECODER, WIDE},
    {"attention.sliding_window_pattern", WINDOW | SINKS, FREE},
    {"attn_logit_softcapping", WINDOW, FREE},
    {"final_logit_softcapping", WINDOW, FREE},
    {"rope.freq_base_swa", WINDOW, FREE},
    {"attention.causal", BERT, FREE},
    {"attention.causal", DECODER | GPT2, CAUSAL},
    {"attention.max_alibi_bias", ALL, ZERO},
    {"attention.clamp_kqv", ALL, ZERO},
    {"use_parallel_residual", ALL, SERIAL},
};

static unsigned arch_of(const mha__gguf_arch *arch)
{
    if (arch->bert) return arch->rotary ? BERT | ROTARY : BERT;
    if (arch->gpt2) return GPT2;
    if (arch->seq2seq) return SEQ2SEQ;
    return DECODER | (arch->window ? WINDOW : 0u) | (arch->experts ? EXPERTS : 0u) |
           (arch->multipliers ? FACTORS : 0u) | (arch->phi ? PHI : 0u) | (arch->sinks ? SINKS : 0u);
}

/* Reads a scalar of any numeric type. */
static mha_status read_number(const mha_file *file, const mha__gguf_value *v, double *value, mha_error *err)
{
    int64_t integer = 0;
    if (v->type == MHA__GGUF_F32 || v->type == MHA__GGUF_F64) return mha__gguf_real(file, v->key, value, err);
    MHA__TRY(mha__gguf_int(file, v->key, INT64_MIN, INT64_MAX, &integer, err));
    *value = (double)integer;
    return MHA_OK;
}

static mha_status check_number(const mha_file *file, const mha__gguf_value *v, double must, const char *shown,
                               mha_error *err)
{
    double value = must;
    MHA__TRY(read_number(file, v, &value, err));
    return value == must ? MHA_OK : mha__gguf_unsupported(file, v->key, shown, err);
}

static mha_status check_flag(const mha_file *file, const mha__gguf_value *v, bool must, mha_error *err)
{
    bool value = must;
    MHA__TRY(mha__gguf_bool(file, v->key, &value, err));
    return value == must ? MHA_OK : mha__gguf_unsupported(file, v->key, must ? "true" : "false", err);
}

static mha_status check_window(const mha_file *file, const mha__gguf_arch *arch, const mha__gguf_value *v,
                               mha_error *err)
{
    int64_t window = 0, positions = 0;
    MHA__TRY(mha__gguf_int(file, v->key, 0, INT64_MAX, &window, err));
    MHA__TRY(mha__gguf_arch_int(file, arch, "context_length", MHA__DIM, &positions, err));
    if (!window || window >= positions) return MHA_OK;
    return mha__gguf_unsupported(file, v->key, "0 or at least the context length", err);
}

static mha_status check_key(const mha_file *file, const mha__gguf_arch *arch, const mha__gguf_value *v,
                            const char *suffix, mha_error *err)
{
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++) {
        if (!(keys[n].archs & arch_of(arch)) || strcmp(keys[n].suffix, suffix) != 0) continue;
        switch (keys[n].rule) {
        case FREE:
            return MHA_OK;
        case ZERO:
            return check_number(file, v, 0, "0", err);
        case ONE:
            return check_number(file, v, 1, "1", err);
        case CAUSAL:
            return check_flag(file, v, true, err);
        case SERIAL:
            return check_flag(file, v, false, err);
        case WIDE:
            return check_window(file, arch, v, err);
        }
    }
    return mha__gguf_unsupported(file, v->key, "absent, since this key is not supported", err);
}

mha_status mha__gguf_check_keys(const mha_file *file, const mha__gguf_arch *arch, mha_error *err)
{
    const size_t n = strlen(arch->name);
    int64_t parts = 1;
    MHA__TRY(mha__gguf_int(file, "split.count", 0, INT64_MAX, &parts, err));
    if (parts > 1) return mha__gguf_unsupported(file, "split.count", "1: merge the files with llama-gguf-split", err);
    for (int64_t i = 0; i < file->gguf->count; i++) {
        const mha__gguf_value *v = &file->gguf->values[i];
        if (strncmp(v->key, arch->name, n) == 0 && v->key[n] == '.')
            MHA__TRY(check_key(file, arch, v, v->key + n + 1, err));
    }
    return MHA_OK;
}

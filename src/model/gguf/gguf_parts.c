/* gguf_parts.c - see gguf_parts.h. */
#include "model/gguf/gguf_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- the parts of each architecture ---- */

#define OUTER(norm)                                                                            \
    {"token_embd", "model.embed_tokens", MHA__GGUF_SAME}, {"output_norm", "model.norm", norm}, \
    {                                                                                          \
        "output", "lm_head", MHA__GGUF_SAME                                                    \
    }

#define ATTENTION(q, k)                                                                                             \
    {"blk.*.attn_q", "model.layers.*.self_attn.q_proj", q}, {"blk.*.attn_k", "model.layers.*.self_attn.k_proj", k}, \
        {"blk.*.attn_v", "model.layers.*.self_attn.v_proj", MHA__GGUF_SAME},                                        \
    {                                                                                                               \
        "blk.*.attn_output", "model.layers.*.self_attn.o_proj", MHA__GGUF_SAME                                      \
    }

#define FEED                                                             \
    {"blk.*.ffn_gate", "model.layers.*.mlp.gate_proj", MHA__GGUF_SAME},  \
        {"blk.*.ffn_up", "model.layers.*.mlp.up_proj", MHA__GGUF_SAME},  \
    {                                                                    \
        "blk.*.ffn_down", "model.layers.*.mlp.down_proj", MHA__GGUF_SAME \
    }

#define NORMS(norm)                                                       \
    {"blk.*.attn_norm", "model.layers.*.input_layernorm", norm},          \
    {                                                                     \
        "blk.*.ffn_norm", "model.layers.*.post_attention_layernorm", norm \
    }

#define HEAD_NORMS(norm)                                             \
    {"blk.*.attn_q_norm", "model.layers.*.self_attn.q_norm", norm},  \
    {                                                                \
        "blk.*.attn_k_norm", "model.layers.*.self_attn.k_norm", norm \
    }

#define FOUR_NORMS(norm)                                                                \
    {"blk.*.attn_norm", "model.layers.*.input_layernorm", norm},                        \
        {"blk.*.post_attention_norm", "model.layers.*.post_attention_layernorm", norm}, \
        {"blk.*.ffn_norm", "model.layers.*.pre_feedforward_layernorm", norm},           \
    {                                                                                   \
        "blk.*.post_ffw_norm", "model.layers.*.post_feedforward_layernorm", norm        \
    }

static const mha__gguf_part llama[] = {
    OUTER(MHA__GGUF_SAME), ATTENTION(MHA__GGUF_ROWS_Q, MHA__GGUF_ROWS_K), FEED, NORMS(MHA__GGUF_SAME), {NULL, NULL, 0}};
static const mha__gguf_part qwen2[] = {
    OUTER(MHA__GGUF_SAME), ATTENTION(MHA__GGUF_SAME, MHA__GGUF_SAME), FEED, NORMS(MHA__GGUF_SAME), {NULL, NULL, 0}};
static const mha__gguf_part qwen3[] = {OUTER(MHA__GGUF_SAME),      ATTENTION(MHA__GGUF_SAME, MHA__GGUF_SAME),
                                       HEAD_NORMS(MHA__GGUF_SAME), FEED,
                                       NORMS(MHA__GGUF_SAME),      {NULL, NULL, 0}};
static const mha__gguf_part gemma[] = {OUTER(MHA__GGUF_PLUS_ONE),
                                       ATTENTION(MHA__GGUF_SAME, MHA__GGUF_SAME),
                                       FEED,
                                       NORMS(MHA__GGUF_PLUS_ONE),
                                       {NULL, NULL, 0}};
static const mha__gguf_part gemma2[] = {OUTER(MHA__GGUF_PLUS_ONE),
                                        ATTENTION(MHA__GGUF_SAME, MHA__GGUF_SAME),
                                        FEED,
                                        FOUR_NORMS(MHA__GGUF_PLUS_ONE),
                                        {NULL, NULL, 0}};
static const mha__gguf_part gemma3[] = {OUTER(MHA__GGUF_PLUS_ONE),      ATTENTION(MHA__GGUF_SAME, MHA__GGUF_SAME),
                                        HEAD_NORMS(MHA__GGUF_PLUS_ONE), FEED,
                                        FOUR_NORMS(MHA__GGUF_PLUS_ONE), {NULL, NULL, 0}};

static const mha__gguf_part olmo2[] = {
    OUTER(MHA__GGUF_SAME),
    ATTENTION(MHA__GGUF_SAME, MHA__GGUF_SAME),
    HEAD_NORMS(MHA__GGUF_SAME),
    FEED,
    {"blk.*.post_attention_norm", "model.layers.*.post_attention_layernorm", MHA__GGUF_SAME},
    {"blk.*.post_ffw_norm", "model.layers.*.post_feedforward_layernorm", MHA__GGUF_SAME},
    {NULL, NULL, 0}};
static const mha__gguf_part phi3[] = {OUTER(MHA__GGUF_SAME),
                                      {"blk.*.attn_qkv", "model.layers.*.self_attn.qkv_proj", MHA__GGUF_SAME},
                                      {"blk.*.attn_output", "model.layers.*.self_attn.o_proj", MHA__GGUF_SAME},
                                      {"blk.*.ffn_up", "model.layers.*.mlp.gate_up_proj", MHA__GGUF_SAME},
                                      {"blk.*.ffn_down", "model.layers.*.mlp.down_proj", MHA__GGUF_SAME},
                                      NORMS(MHA__GGUF_SAME),
                                      {NULL, NULL, 0}};
static const mha__gguf_part mixtral[] = {
    OUTER(MHA__GGUF_SAME),
    ATTENTION(MHA__GGUF_ROWS_Q, MHA__GGUF_ROWS_K),
    {"blk.*.ffn_gate_inp", "model.layers.*.block_sparse_moe.gate", MHA__GGUF_SAME},
    {"blk.*.ffn_gate_exps", "model.layers.*.block_sparse_moe.experts.*.w1", MHA__GGUF_EXPERTS},
    {"blk.*.ffn_up_exps", "model.layers.*.block_sparse_moe.experts.*.w3", MHA__GGUF_EXPERTS},
    {"blk.*.ffn_down_exps", "model.layers.*.block_sparse_moe.experts.*.w2", MHA__GGUF_EXPERTS},
    NORMS(MHA__GGUF_SAME),
    {NULL, NULL, 0}};
static const mha__gguf_part qwen3moe[] = {
    OUTER(MHA__GGUF_SAME),
    ATTENTION(MHA__GGUF_SAME, MHA__GGUF_SAME),
    HEAD_NORMS(MHA__GGUF_SAME),
    {"blk.*.ffn_gate_inp", "model.layers.*.mlp.gate", MHA__GGUF_SAME},
    {"blk.*.ffn_gate_exps", "model.layers.*.mlp.experts.*.gate_proj", MHA__GGUF_EXPERTS},
    {"blk.*.ffn_up_exps", "model.layers.*.mlp.experts.*.up_proj", MHA__GGUF_EXPERTS},
    {"blk.*.ffn_down_exps", "model.layers.*.mlp.experts.*.down_proj", MHA__GGUF_EXPERTS},
    NORMS(MHA__GGUF_SAME),
    {NULL, NULL, 0}};

static const mha__gguf_part gpt_oss[] = {
    OUTER(MHA__GGUF_SAME),
    ATTENTION(MHA__GGUF_SAME, MHA__GGUF_SAME),
    {"blk.*.attn_sinks", "model.layers.*.self_attn.sinks", MHA__GGUF_BARE},
    {"blk.*.ffn_gate_inp", "model.layers.*.mlp.router", MHA__GGUF_SAME},
    {"blk.*.ffn_gate_exps", "model.layers.*.mlp.experts.gate_up_proj", MHA__GGUF_GATE},
    {"blk.*.ffn_up_exps", "model.layers.*.mlp.experts.gate_up_proj", MHA__GGUF_UP},
    {"blk.*.ffn_down_exps", "model.layers.*.mlp.experts.down_proj", MHA__GGUF_STACK},
    {"blk.*.attn_norm", "model.layers.*.input_layernorm", MHA__GGUF_SAME},
    {"blk.*.post_attention_norm", "model.layers.*.post_attention_layernorm", MHA__GGUF_SAME},
    {NULL, NULL, 0},
};

static const mha__gguf_part gpt2[] = {
    {"token_embd", "transformer.wte", MHA__GGUF_SAME},
    {"position_embd", "transformer.wpe", MHA__GGUF_SAME},
    {"output_norm", "transformer.ln_f", MHA__GGUF_SAME},
    {"output", "lm_head", MHA__GGUF_SAME},
    {"blk.*.attn_norm", "transformer.h.*.ln_1", MHA__GGUF_SAME},
    {"blk.*.attn_qkv", "transformer.h.*.attn.c_attn", MHA__GGUF_TRANSPOSED},
    {"blk.*.attn_output", "transformer.h.*.attn.c_proj", MHA__GGUF_TRANSPOSED},
    {"blk.*.ffn_norm", "transformer.h.*.ln_2", MHA__GGUF_SAME},
    {"blk.*.ffn_up", "transformer.h.*.mlp.c_fc", MHA__GGUF_TRANSPOSED},
    {"blk.*.ffn_down", "transformer.h.*.mlp.c_proj", MHA__GGUF_TRANSPOSED},
    {NULL, NULL, 0},
};

static const mha__gguf_part bert[] = {
    {"token_embd", "bert.embeddings.word_embeddings", MHA__GGUF_SAME},
    {"position_embd", "bert.embeddings.position_embeddings", MHA__GGUF_SAME},
    {"token_types", "bert.embeddings.token_type_embeddings", MHA__GGUF_SAME},
    {"token_embd_norm", "bert.embeddings.LayerNorm", MHA__GGUF_SAME},
    {"blk.*.attn_q", "bert.encoder.layer.*.attention.self.query", MHA__GGUF_SAME},
    {"blk.*.attn_k", "bert.encoder.layer.*.attention.self.key", MHA__GGUF_SAME},
    {"blk.*.attn_v", "bert.encoder.layer.*.attention.self.value", MHA__GGUF_SAME},
    {"blk.*.attn_output", "bert.encoder.layer.*.attention.output.dense", MHA__GGUF_SAME},
    {"blk.*.attn_output_norm", "bert.encoder.layer.*.attention.output.LayerNorm", MHA__GGUF_SAME},
    {"blk.*.ffn_up", "bert.encoder.layer.*.intermediate.dense", MHA__GGUF_SAME},
    {"blk.*.ffn_down", "bert.encoder.layer.*.output.dense", MHA__GGUF_SAME},
    {"blk.*.layer_output_norm", "bert.encoder.layer.*.output.LayerNorm", MHA__GGUF_SAME},
    {NULL, NULL, 0},
};

static const mha__gguf_part nomic_bert[] = {
    {"token_embd", "nomic_bert.embeddings.word_embeddings", MHA__GGUF_SAME},
    {"token_types", "nomic_bert.embeddings.token_type_embeddings", MHA__GGUF_SAME},
    {"token_embd_norm", "nomic_bert.emb_ln", MHA__GGUF_SAME},
    {"blk.*.attn_qkv", "nomic_bert.encoder.layers.*.attn.Wqkv", MHA__GGUF_SAME},
    {"blk.*.attn_output", "nomic_bert.encoder.layers.*.attn.out_proj", MHA__GGUF_SAME},
    {"blk.*.attn_output_norm", "nomic_bert.encoder.layers.*.norm1", MHA__GGUF_SAME},
    {"blk.*.ffn_up", "nomic_bert.encoder.layers.*.mlp.fc11", MHA__GGUF_SAME},
    {"blk.*.ffn_gate", "nomic_bert.encoder.layers.*.mlp.fc12", MHA__GGUF_SAME},
    {"blk.*.ffn_down", "nomic_bert.encoder.layers.*.mlp.fc2", MHA__GGUF_SAME},
    {"blk.*.layer_output_norm", "nomic_bert.encoder.layers.*.norm2", MHA__GGUF_SAME},
    {NULL, NULL, 0},
};

/* An architecture that shares its name with one without experts, or without a gate, follows it. */
static const mha__gguf_arch archs[] = {
    {.name = "llama", .family = "llama", .parts = llama, .biased = true, .head_width = true},
    {.name = "llama", .family = "mixtral", .parts = mixtral, .unbiased = true, .head_width = true, .experts = true},
    {.name = "qwen2", .family = "qwen2", .parts = qwen2},
    {.name = "qwen3", .family = "qwen3", .parts = qwen3, .unbiased = true, .head_width = true},
    {.name = "qwen3moe",
     .family = "qwen3_moe",
     .parts = qwen3moe,
     .unbiased = true,
     .head_width = true,
     .experts = true,
     .expert_width = true},
    {.name = "gemma", .family = "gemma", .parts = gemma, .unbiased = true, .gemma_scale = true, .head_width = true},
    {.name = "gemma2",
     .family = "gemma2",
     .parts = gemma2,
     .unbiased = true,
     .gemma_scale = true,
     .window = true,
     .head_width = true},
    {.name = "gemma3",
     .family = "gemma3_text",
     .parts = gemma3,
     .unbiased = true,
     .local_theta = true,
     .gemma_scale = true,
     .window = true,
     .head_width = true},
    {.name = "olmo2", .family = "olmo2", .parts = olmo2, .unbiased = true},
    {.name = "granite", .family = "granite", .parts = llama, .biased = true, .head_width = true, .multipliers = true},
    {.name = "smollm3", .family = "smollm3", .parts = llama, .unbiased = true, .biased = true, .head_width = true},
    {.name = "phi3", .family = "phi3", .parts = phi3, .phi = true},
    {.name = "gpt-oss",
     .family = "gpt_oss",
     .parts = gpt_oss,
     .biased = true,
     .head_width = true,
     .experts = true,
     .sinks = true},
    {.name = "gpt2", .family = "gpt2", .parts = gpt2, .gpt2 = true},
    {.name = "bert", .family = "bert", .parts = bert, .bert = true},
    {.name = "nomic-bert", .family = "nomic_bert", .parts = nomic_bert, .bert = true, .rotary = true},
    {.name = "t5", .family = "t5", .parts = mha__gguf_t5, .head_width = true, .seq2seq = true},
    {.name = "t5", .family = "t5", .parts = mha__gguf_t5_gated, .head_width = true, .seq2seq = true, .gated = true},
};

enum { ARCHS = sizeof archs / sizeof *archs };

static bool has_more(const mha__gguf_arch *arch)
{
    return arch->experts || arch->gated;
}

const char *const mha__gguf_rope_factors[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                              "rope_factors_long.weight"};

bool mha__gguf_is_rope_factors(const char *name)
{
    for (size_t n = 0; n < sizeof mha__gguf_rope_factors / sizeof *mha__gguf_rope_factors; n++)
        if (strcmp(name, mha__gguf_rope_factors[n]) == 0) return true;
    return false;
}

const mha__gguf_arch *mha__gguf_arch_named(const char *name, size_t n, bool more)
{
    const mha__gguf_arch *found = NULL;
    for (int i = 0; i < ARCHS && !(found && has_more(found) == more); i++)
        if (strlen(archs[i].name) == n && memcmp(archs[i].name, name, n) == 0)
            if (!found || has_more(&archs[i]) == more) found = &archs[i];
    return found;
}

const mha__gguf_arch *mha__gguf_arch_of(const char *family)
{
    for (int i = 0; i < ARCHS; i++)
        if (strcmp(archs[i].family, family) == 0) return &archs[i];
    return strcmp(family, "mistral") == 0 ? &archs[0] : NULL; /* llama.cpp has no architecture of its own for it */
}

void mha__gguf_arch_names(char *text, size_t capacity)
{
    size_t n = 0;
    *text = '\0';
    for (int i = 0; i < ARCHS && n < capacity; i++)
        if (!i || strcmp(archs[i].name, archs[i - 1].name) != 0)
            n += (size_t)snprintf(text + n, capacity - n, "%s%s", i ? ", " : "", archs[i].name);
}

/* ---- names of tensors ---- */

enum { STARS = 2 };

/* The digits in place of each '*' of a pattern. */
typedef struct numbers {
    const char *text[STARS];
    int digits[STARS], count;
} numbers;

/* Matches the pattern with the start of `name`; '*' matches a number without leading zeros. Returns the rest of the
 * name, or NULL. */
static const char *match(const char *pattern, const char *name, numbers *found)
{
    found->count = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*name++ != *pattern) return NULL;
            continue;
        }
        const char *start = name;
        while (isdigit((unsigned char)*name) && name - start < 5)
            name++;
        if (name == start || (*start == '0' && name - start > 1)) return NULL;
        found->text[found->count] = start;
        found->digits[found->count++] = (int)(name - start);
    }
    return name;
}

/* Writes the pattern with the numbers in place of '*', as far as there are numbers, and the suffix. */
static void write_name(const char *pattern, const numbers *found, const char *suffix, char *to, size_t capacity)
{
    size_t n = 0;
    for (int star = 0; *pattern && n + 1 < capacity; pattern++)
        if (*pattern == '*' && star < found->count) {
            n += (size_t)snprintf(to + n, capacity - n, "%.*s", found->digits[star], found->text[star]);
            star++;
        } else
            to[n++] = *pattern;
    if (n >= capacity) n = capacity - 1;
    snprintf(to + n, capacity - n, "%s", suffix);
}

/* Suffixes of weights and biases, by whether own names are bare. */
static const char *const suffixes[2][2] = {{".weight", ".bias"}, {"", "_bias"}};

/* Returns 0 for the suffix of a weight, 1 for that of a bias, and -1 for any other. */
static int suffix_of(const char *suffix, bool bare)
{
    for (int n = 0; n < 2; n++)
        if (strcmp(suffix, suffixes[bare][n]) == 0) return n;
    return -1;
}

const mha__gguf_part *mha__gguf_part_named(const mha__gguf_arch *arch, const char *name, bool from_gguf, char *other,
                                           size_t capacity)
{
    for (const mha__gguf_part *p = arch->parts; p->gguf; p++) {
        numbers found;
        const char *suffix = match(from_gguf ? p->gguf : p->own, name, &found);
        const bool bare = p->change >= MHA__GGUF_BARE;
        const int n = suffix ? suffix_of(suffix, !from_gguf && bare) : -1;
        if (n < 0) continue;
        write_name(from_gguf ? p->own : p->gguf, &found, suffixes[from_gguf && bare][n], other, capacity);
        return p;
    }
    return NULL;
}

mha__gguf_change mha__gguf_stored_name(const char *family, const char *name, char *stored, size_t capacity)
{
    const mha__gguf_arch *arch = mha__gguf_arch_of(family);
    const mha__gguf_part *part = arch ? mha__gguf_part_named(arch, name, false, stored, capacity) : NULL;
    if (arch && !part && arch->seq2seq) part = mha__gguf_part_named(arch + 1, name, false, stored, capacity);
    if (!part) snprintf(stored, capacity, "%s", name);
    return part ? part->change : MHA__GGUF_SAME;
}

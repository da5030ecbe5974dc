/* gguf_parts.h - the architectures of GGUF files that are also families of this library, and the names and layouts of
 * their tensors in both. */
#ifndef MHA_MODEL_GGUF_GGUF_PARTS_H
#define MHA_MODEL_GGUF_GGUF_PARTS_H

#include <stdbool.h>
#include <stddef.h>

/* How the elements of a tensor in a GGUF file differ from those in a checkpoint of transformers. */
typedef enum mha__gguf_change {
    MHA__GGUF_SAME = 0,
    MHA__GGUF_ROWS_Q,     /* rows of each head: rotated pairs are neighbors, instead of half a head apart */
    MHA__GGUF_ROWS_K,     /* likewise, for the heads of k */
    MHA__GGUF_TRANSPOSED, /* a Conv1D of GPT-2 */
    MHA__GGUF_EXPERTS,    /* the matrices of all experts, one after another, instead of one tensor per expert */
    MHA__GGUF_PLUS_ONE,   /* a norm that transformers stores as the difference from 1 */
    MHA__GGUF_BARE,       /* from here on, own names end in "" and "_bias" instead of ".weight" and ".bias" */
    MHA__GGUF_STACK,      /* all experts in one tensor in both, whose matrices are transposed */
    MHA__GGUF_GATE,       /* likewise, the even columns of a tensor whose odd columns are the next part */
    MHA__GGUF_UP
} mha__gguf_change;

/* Names without the suffix ".weight" or ".bias"; '*' is the number of a layer and, after it, of an expert. */
typedef struct mha__gguf_part {
    const char *gguf, *own;
    mha__gguf_change change;
} mha__gguf_part;

typedef struct mha__gguf_arch {
    const char *name;            /* general.architecture */
    const char *family;          /* model_type of transformers */
    const mha__gguf_part *parts; /* ends with a NULL name */
    bool bert, gpt2;             /* keys of BERT or GPT-2; false = keys of the families like LLaMA */
    bool local_theta;            /* layers with a window have a rotation of their own */
    bool biased;                 /* attn_q.bias sets attention_bias */
    bool gemma_scale;            /* the scale of scores is not stored: it depends on head_dim */
    bool window;                 /* has attention.sliding_window and other keys of Gemma */
    bool head_width;             /* the width of a head may differ from hidden_size / heads (llama.cpp) */
    bool unbiased;               /* llama.cpp lacks some or all biases: models with biases are not written */
    bool experts;                /* has expert_count */
    bool expert_width;           /* experts have a width of their own, expert_feed_forward_length */
    bool multipliers;            /* has the factors of Granite */
    bool phi;                    /* has attention.sliding_window for all layers, partial rotation, and long factors */
    bool sinks;                  /* has the keys of gpt-oss */
    bool seq2seq;                /* T5: an encoder and a decoder */
    bool gated;                  /* with `seq2seq`: the feed-forward has a gate */
    bool rotary;                 /* with `bert`: positions are rotations, the feed-forward is gated */
} mha__gguf_arch;

/* The parts of T5 without and with a gate (gguf_parts_t5.c). */
extern const mha__gguf_part mha__gguf_t5[], mha__gguf_t5_gated[];

/* The tensors of factors of the rotation, which the config contains: of LLaMA 3, and of Phi-3 for short and for long
 * texts. */
extern const char *const mha__gguf_rope_factors[3];
/* Returns true if a tensor has one of these names. */
bool mha__gguf_is_rope_factors(const char *name);

/* Returns the architecture by its name, or by the family that it represents; NULL if unknown. Two architectures may
 * have the same name: one with experts or a gate, `more`, and one without. */
const mha__gguf_arch *mha__gguf_arch_named(const char *name, size_t n, bool more);
const mha__gguf_arch *mha__gguf_arch_of(const char *family);
/* Lists the names of all architectures for messages. */
void mha__gguf_arch_names(char *text, size_t capacity);

/* Returns the part that a tensor belongs to, and writes its name on the other side to `other`, with layer and suffix;
 * NULL if the architecture has no such tensor. `from_gguf`: `name` is a name in a GGUF file; the number of an expert,
 * which it lacks, remains '*' in `other`. */
const mha__gguf_part *mha__gguf_part_named(const mha__gguf_arch *arch, const char *name, bool from_gguf, char *other,
                                           size_t capacity);

/* Writes the name that a tensor of the family has in a GGUF file, or `name` if files have no such tensor. Returns how
 * its elements differ. */
mha__gguf_change mha__gguf_stored_name(const char *family, const char *name, char *stored, size_t capacity);

#endif

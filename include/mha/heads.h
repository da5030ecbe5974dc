/* heads.h - what each attention head does: statistics, patterns and a label for every head of a model.
 *
 * All numbers are means over query rows of all texts together (sum over rows / number of rows). Padding never counts.
 * Keys are always all real tokens; pattern scores use content rows (queries that are no special token), statistics use
 * all rows. Only one layer's maps are held at a time.
 */
#ifndef MHA_HEADS_H
#define MHA_HEADS_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, key, one line of explanation). `mha heads --help` prints this list;
 * docs/glossary.md explains each key in more words, and a test sees that none is missing there. */
#define MHA_HEAD_METRIC_MAP(X)                                                                 \
    X(MHA_HEAD_ENTROPY, "entropy", "bits: -sum p log2 p of a row")                             \
    X(MHA_HEAD_ENTROPY_NORM, "entropy_norm", "entropy / log2(visible keys), 0..1")             \
    X(MHA_HEAD_DISTANCE, "distance", "tokens: sum p |i - j| of a row")                         \
    X(MHA_HEAD_OFFSET, "offset", "tokens: sum p (j - i); negative looks back")                 \
    X(MHA_HEAD_CONFIDENCE, "confidence", "largest p of a row")                                 \
    X(MHA_HEAD_FIRST, "first", "mass on the first token")                                      \
    X(MHA_HEAD_SEP, "sep", "mass on separator tokens")                                         \
    X(MHA_HEAD_PREV, "prev", "mass on the token before")                                       \
    X(MHA_HEAD_NEXT, "next", "mass on the token after")                                        \
    X(MHA_HEAD_SELF, "self", "mass on the token itself")                                       \
    X(MHA_HEAD_PUNCT, "punct", "mass on . , ; : ? !")                                          \
    X(MHA_HEAD_WINDOW2, "window2", "mass within two tokens")                                   \
    X(MHA_HEAD_BROAD, "broad", "entropy_norm over content rows")                               \
    X(MHA_HEAD_VERTICAL, "vertical", "share of energy explained by all rows being equal")      \
    X(MHA_HEAD_TOEPLITZ, "toeplitz", "share of energy explained by the offset alone")          \
    X(MHA_HEAD_DUP_PROBE, "dup_probe", "probe text: mass on the other copy of the same token") \
    X(MHA_HEAD_INDUCTION_PROBE, "induction_probe", "probe text: mass on what followed the first copy")

typedef enum mha_head_metric {
#define MHA__X(name, key, text) name,
    MHA_HEAD_METRIC_MAP(MHA__X)
#undef MHA__X
        MHA_HEAD_METRICS
} mha_head_metric;

/* "entropy" ...; NULL out of range. */
MHA_API const char *mha_head_metric_key(mha_head_metric metric);
MHA_API const char *mha_head_metric_help(mha_head_metric metric);

/* X(name, key, its rule). The label of a head is the first that fires: induction, duplicate, the largest of prev next
 * self first sep punct, local, broad, vertical, mixed. */
#define MHA_HEAD_LABEL_MAP(X)                                                                                      \
    X(MHA_LABEL_INDUCTION, "induction", "in a repeated text it looks at what came after the first copy (>= 0.40)") \
    X(MHA_LABEL_DUPLICATE, "duplicate", "in a repeated text it looks at the other copy of the token (>= 0.40)")    \
    X(MHA_LABEL_PREV, "prev", "looks at the token before (>= 0.40 of the weight)")                                 \
    X(MHA_LABEL_NEXT, "next", "looks at the token after (>= 0.40)")                                                \
    X(MHA_LABEL_SELF, "self", "looks at the token itself (>= 0.40)")                                               \
    X(MHA_LABEL_FIRST, "first", "looks at the first token, often a place to rest (>= 0.40)")                       \
    X(MHA_LABEL_SEP, "sep", "looks at separator tokens (>= 0.40)")                                                 \
    X(MHA_LABEL_PUNCT, "punct", "looks at punctuation (>= 0.40)")                                                  \
    X(MHA_LABEL_LOCAL, "local", "looks within two tokens (>= 0.70)")                                               \
    X(MHA_LABEL_BROAD, "broad", "spreads over nearly all tokens (entropy >= 0.90 of the largest)")                 \
    X(MHA_LABEL_VERTICAL, "vertical", "looks at the same tokens from every place (>= 0.80 of the energy)")         \
    X(MHA_LABEL_MIXED, "mixed", "no rule fires")

typedef enum mha_head_label {
#define MHA__X(name, key, text) name,
    MHA_HEAD_LABEL_MAP(MHA__X)
#undef MHA__X
        MHA_HEAD_LABELS
} mha_head_label;

/* "induction" ...; NULL out of range. */
MHA_API const char *mha_head_label_key(mha_head_label label);
MHA_API const char *mha_head_label_help(mha_head_label label);

/* Probe texts of one's own, r r between the tokenizer's special tokens, instead of 4 drawn ones of 16 tokens. */
typedef struct mha_head_probe {
    const int32_t *ids;    /* [texts, period]: the r of each text; NULL = drawn */
    int64_t texts, period; /* of `ids`; at most 4096 texts */
} mha_head_probe;

typedef struct mha_heads_options {
    size_t size;
    int no_probe;       /* 1 = leave out the two probe scores; "induction" and "duplicate" are then never given */
    uint64_t seed;      /* of the probe texts */
    int64_t max_tokens; /* cut of each text; 0 = the model's maximum, where a cut is a warning in the log */
    int keep_maps;      /* 1 = keep the maps of every layer; only for one text */
    mha_head_probe probe;
} mha_heads_options;

typedef struct mha_heads mha_heads;

/* Runs the model over `count` texts and measures every head. `options` may be NULL. The model needs a tokenizer. Texts
 * are terminated UTF-8 (so without NUL); one of more tokens than the model takes is cut there, with a warning in the
 * context's log that names it. Errors: MHA_ERR_ARG for no texts and for one that is NULL or not UTF-8. Reports progress
 * as "measure heads". Cost: one forward pass per text. */
MHA_API mha_status mha_heads_measure(const mha_model *model, const char *const *texts, int64_t count,
                                     const mha_heads_options *options, mha_heads **out, mha_error *err);
MHA_API void mha_heads_free(mha_heads *heads);

MHA_API int64_t mha_heads_layers(const mha_heads *heads);
MHA_API int64_t mha_heads_count(const mha_heads *heads, int64_t layer); /* heads of that layer */
/* NAN where a metric has no row to speak about, and out of range. */
MHA_API double mha_heads_value(const mha_heads *heads, int64_t layer, int64_t head, mha_head_metric metric);
/* MHA_LABEL_MIXED out of range. */
MHA_API mha_head_label mha_heads_label(const mha_heads *heads, int64_t layer, int64_t head);

/* Tokens of the text and the map [n, n] (row = query) of one head, with keep_maps; else NULL. */
MHA_API const mha_encoding *mha_heads_tokens(const mha_heads *heads);
MHA_API const float *mha_heads_map(const mha_heads *heads, int64_t layer, int64_t head);

#ifdef __cplusplus
}
#endif
#endif

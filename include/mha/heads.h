/* heads.h - describes what each attention head does: statistics, patterns and a label for every head of a model.
 *
 * Every metric is a mean over the query rows of all texts: sum over rows / number of rows. Padding tokens count neither
 * as rows nor as keys. Pattern metrics use content rows (queries that are not special tokens); statistics use all rows.
 * Rows are summed while the operator computes them and are not stored: memory grows linearly with the longest text,
 * unless maps are kept.
 */
#ifndef MHA_HEADS_H
#define MHA_HEADS_H

#include "mha/head_data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, key, one line of explanation). `mha heads --help` prints this list;
 * docs/glossary.md explains each key, and a test checks that none is missing there. */
#define MHA_HEAD_METRIC_MAP(X)                                                                            \
    X(MHA_HEAD_ENTROPY, "entropy", "bits: -sum p log2 p of a row")                                        \
    X(MHA_HEAD_ENTROPY_NORM, "entropy_norm", "entropy / log2(unmasked keys), 0..1")                       \
    X(MHA_HEAD_ENTROPY_CONTENT, "entropy_content", "entropy over content rows")                           \
    X(MHA_HEAD_DISTANCE, "distance", "tokens: sum p |i - j| of a row")                                    \
    X(MHA_HEAD_DISTANCE_CONTENT, "distance_content", "distance over content rows")                        \
    X(MHA_HEAD_OFFSET, "offset", "tokens: sum p (j - i); negative = earlier tokens")                      \
    X(MHA_HEAD_CONFIDENCE, "confidence", "largest p of a row")                                            \
    X(MHA_HEAD_CONFIDENCE_CONTENT, "confidence_content", "confidence over content rows")                  \
    X(MHA_HEAD_CONFIDENCE_NOSPECIAL, "confidence_nospecial",                                              \
      "largest p on a key that is not special, over content rows")                                        \
    X(MHA_HEAD_SINK, "sink", "mass on the first token, over all rows; a sink if > 0.3")                   \
    X(MHA_HEAD_FIRST, "first", "mass on the first token")                                                 \
    X(MHA_HEAD_SEP, "sep", "mass on separator tokens")                                                    \
    X(MHA_HEAD_PREV, "prev", "mass on the previous token")                                                \
    X(MHA_HEAD_NEXT, "next", "mass on the next token")                                                    \
    X(MHA_HEAD_SELF, "self", "mass on the token itself")                                                  \
    X(MHA_HEAD_PUNCT, "punct", "mass on . , ; : ? !")                                                     \
    X(MHA_HEAD_FIRST_ARGMAX, "first_argmax", "fraction of rows whose largest p is on the first token")    \
    X(MHA_HEAD_PREV_ARGMAX, "prev_argmax", "fraction of rows whose largest p is on the previous token")   \
    X(MHA_HEAD_NEXT_ARGMAX, "next_argmax", "fraction of rows whose largest p is on the next token")       \
    X(MHA_HEAD_SELF_ARGMAX, "self_argmax", "fraction of rows whose largest p is on the token itself")     \
    X(MHA_HEAD_WINDOW2, "window2", "mass at a distance of at most two tokens")                            \
    X(MHA_HEAD_BLOCK, "block", "mass inside the token's segment minus the fraction of keys in it, -1..1") \
    X(MHA_HEAD_BROAD, "broad", "entropy_norm over content rows")                                          \
    X(MHA_HEAD_VERTICAL, "vertical", "fraction of energy explained by the mean row alone")                \
    X(MHA_HEAD_TOEPLITZ, "toeplitz", "fraction of energy explained by the offset alone")                  \
    X(MHA_HEAD_DUP_PROBE, "dup_probe", "probe text: mass on the token's other copy")                      \
    X(MHA_HEAD_INDUCTION_PROBE, "induction_probe", "probe text: mass on the token after the first copy")

typedef enum mha_head_metric {
#define MHA__X(name, key, text) name,
    MHA_HEAD_METRIC_MAP(MHA__X)
#undef MHA__X
        MHA_HEAD_METRICS
} mha_head_metric;

/* Return the key, such as "entropy", and its help text; NULL if out of range. */
MHA_API const char *mha_head_metric_key(mha_head_metric metric);
MHA_API const char *mha_head_metric_help(mha_head_metric metric);

/* X(name, key, rule). A head gets the first label whose rule applies, in this order: induction; duplicate; the label
 * with the largest metric among prev, next, self, first, sep and punct; local; block; broad; vertical; mixed. The
 * thresholds are options. */
#define MHA_HEAD_LABEL_MAP(X)                                                                                      \
    X(MHA_LABEL_INDUCTION, "induction", "in a repeated text, attends to the token after the first copy (>= 0.40)") \
    X(MHA_LABEL_DUPLICATE, "duplicate", "in a repeated text, attends to the other copy of the token (>= 0.40)")    \
    X(MHA_LABEL_PREV, "prev", "attends to the previous token (>= 0.40 of the weight)")                             \
    X(MHA_LABEL_NEXT, "next", "attends to the next token (>= 0.40)")                                               \
    X(MHA_LABEL_SELF, "self", "attends to the token itself (>= 0.40)")                                             \
    X(MHA_LABEL_FIRST, "first", "attends to the first token, often an attention sink (>= 0.40)")                   \
    X(MHA_LABEL_SEP, "sep", "attends to separator tokens (>= 0.40)")                                               \
    X(MHA_LABEL_PUNCT, "punct", "attends to punctuation (>= 0.40)")                                                \
    X(MHA_LABEL_LOCAL, "local", "attends to tokens at a distance of at most two (>= 0.70)")                        \
    X(MHA_LABEL_BLOCK, "block", "attends to the token's segment (weight - fraction of the text >= 0.40)")          \
    X(MHA_LABEL_BROAD, "broad", "attends to nearly all tokens (entropy >= 0.90 of the maximum)")                   \
    X(MHA_LABEL_VERTICAL, "vertical", "attends to the same tokens from every position (>= 0.80 of the energy)")    \
    X(MHA_LABEL_MIXED, "mixed", "no rule applies")

typedef enum mha_head_label {
#define MHA__X(name, key, text) name,
    MHA_HEAD_LABEL_MAP(MHA__X)
#undef MHA__X
        MHA_HEAD_LABELS
} mha_head_label;

/* Return the key, such as "induction", and its help text; NULL if out of range. */
MHA_API const char *mha_head_label_key(mha_head_label label);
MHA_API const char *mha_head_label_help(mha_head_label label);

/* Probe texts, each [first] r r [last] with a sequence r of tokens. The default is 4 random texts with 16 tokens in
 * r. */
typedef struct mha_head_probe {
    const int32_t *ids;    /* [texts, period] r of each text; NULL = random */
    int64_t texts, period; /* number of probe texts, at most 4096, and length of r; 0 if ids is NULL */
    /* Tokens before and after r r, at most 8 each; NULL, with count 0 = the special tokens of the tokenizer, if any. */
    const int32_t *first, *last;
    int64_t first_count, last_count;
} mha_head_probe;

/* Thresholds of the label rules and of sinks; 0 = the default in brackets. */
typedef struct mha_head_thresholds {
    double probe;    /* [0.40] for induction and duplicate */
    double single;   /* [0.40] for prev, next, self, first, sep and punct */
    double local;    /* [0.70] for local */
    double block;    /* [0.40] for block */
    double broad;    /* [0.90] for broad */
    double vertical; /* [0.80] for vertical */
    double sink;     /* [0.30] a sink receives more than this fraction of the weight of all rows */
} mha_head_thresholds;

typedef struct mha_heads_options {
    size_t size;
    int no_probe;       /* 1 = skip the two probe metrics and therefore the labels "induction" and "duplicate" */
    uint64_t seed;      /* seed of the probe texts */
    int64_t max_tokens; /* for mha_heads_measure, as in mha_head_data_options; must be 0 for mha_heads_measure_data */
    int keep_maps;      /* 1 = keep the maps of every layer; for a single text only */
    mha_head_probe probe;
    mha_head_thresholds thresholds;
    /* A file that stores the sums so far, so that an interrupted or killed run can resume with a bitwise identical
     * result. It is read if it exists, and replaced atomically about once a second, at the end, and on cancellation.
     * MHA_ERR_ARG if the file belongs to another model, data or options. Must be NULL if keep_maps is set. NULL =
     * none. */
    const char *state;
} mha_heads_options;

typedef struct mha_heads mha_heads;

/* Runs the model over the data and measures every head. `options` may be NULL. Reports progress as "measure heads", in
 * tokens. Cost: one forward pass that computes the attention scores twice; short texts take about 1.1 times as long as
 * the pass alone. Memory, in addition to that of a pass over batch_tokens or the longest text: for each token of the
 * longest text, two doubles per head of all layers, five per head of one layer, and 32 floats per thread; with
 * keep_maps, also all maps. Results are bitwise identical for any number of threads, any batch_tokens and any order of
 * the texts: sums within a text are in double, and sums over texts are integers in units of 2^-80. */
MHA_API mha_status mha_heads_measure_data(const mha_model *model, const mha_head_data *data,
                                          const mha_heads_options *options, mha_heads **out, mha_error *err);

/* Measures `count` texts, tokenized by mha_head_data_of_texts, whose errors it also returns. */
MHA_API mha_status mha_heads_measure(const mha_model *model, const char *const *texts, int64_t count,
                                     const mha_heads_options *options, mha_heads **out, mha_error *err);

/* ---- metrics of given maps ---- */

/* Kinds of tokens; a token may have several of these flags. */
enum {
    MHA_TOKEN_SPECIAL = 1, /* [CLS], [SEP], BOS ...; the token's row is not a content row */
    MHA_TOKEN_SEP = 2,     /* counted by "sep" */
    MHA_TOKEN_PUNCT = 4    /* counted by "punct": . , ; : ? ! */
};

/* Stores in kinds [count] the kind of each token, as mha_heads_measure counts it. Special are the tokens that the
 * tokenizer puts around a text, and separators: [SEP], </s>, <eos>, <|endoftext|>, <|end_of_text|>, <|eot_id|> and
 * <|im_end|>. An unknown id has no kind. Tokenizes one short text. Errors: MHA_ERR_ARG for NULL and a negative count;
 * MHA_ERR_UNSUPPORTED for a tokenizer that puts more than 8 tokens on one side of a text; MHA_ERR_MEMORY. */
MHA_API mha_status mha_head_token_kinds(const mha_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                        uint8_t *kinds, mha_error *err);

/* The maps of one text. */
typedef struct mha_head_map {
    int64_t tokens;          /* number of tokens, without padding */
    const float *p;          /* [layers, heads, tokens, tokens]: row = query; each element in 0..1 */
    const uint8_t *kinds;    /* [tokens] MHA_TOKEN_SPECIAL ...; NULL = all 0 */
    const int32_t *segments; /* [tokens] as in mha_head_data_options; NULL = none */
} mha_head_map;

/* The queries of one text in cross-attention. Its maps have a row per query and a column per token. */
typedef struct mha_head_queries {
    int64_t tokens;       /* number of query tokens */
    const uint8_t *kinds; /* [tokens] MHA_TOKEN_SPECIAL ...; NULL = all 0 */
} mha_head_queries;

typedef struct mha_head_maps {
    size_t size;
    int64_t layers, heads; /* number of layers, and of heads in each layer */
    int causal;            /* 1 = row i attends to keys 0 to i; weights of later keys are 0 */
    int64_t count;         /* number of texts */
    const mha_head_map *text;
    mha_head_thresholds thresholds;
    /* [count] the queries of cross-attention: p is then [layers, heads, query tokens, tokens]. Requires causal 0 and
     * no segments. NULL = self-attention, in which the queries are the tokens themselves. */
    const mha_head_queries *queries;
} mha_head_maps;

/* Computes the same metrics from given maps, without a model; the two probe metrics are NAN. In cross-attention,
 * metrics that compare the position of a query with that of a key are NAN too: distance, distance_content, offset,
 * prev, next, self and their argmax, window2, block and toeplitz; "first" is the mean over all content rows, and the
 * labels are first, sep, punct, broad, vertical and mixed. The result keeps neither maps nor tokens. `ctx` may be
 * NULL. Runs on the calling thread. Cost: one logarithm per nonzero element. Errors: MHA_ERR_ARG if there are no
 * layers, heads, texts, tokens or queries, and for an element outside 0..1, naming text, layer, head, row and key;
 * MHA_ERR_MEMORY. */
MHA_API mha_status mha_heads_of_maps(mha_ctx *ctx, const mha_head_maps *maps, mha_heads **out, mha_error *err);

MHA_API void mha_heads_free(mha_heads *heads);

MHA_API int64_t mha_heads_layers(const mha_heads *heads);
MHA_API int64_t mha_heads_count(const mha_heads *heads, int64_t layer); /* number of heads in `layer` */
/* Returns the value of a metric; NAN if the metric applies to no row, or if out of range. */
MHA_API double mha_heads_value(const mha_heads *heads, int64_t layer, int64_t head, mha_head_metric metric);
/* Returns the label of a head; MHA_LABEL_MIXED if out of range. */
MHA_API mha_head_label mha_heads_label(const mha_heads *heads, int64_t layer, int64_t head);

/* Returns the fraction of all heads whose "sink" is above the threshold (attention sinks, Gu et al. 2024). */
MHA_API double mha_heads_sink_rate(const mha_heads *heads);

/* Returns the mean weight that each position receives, over the rows that may attend to it, in all texts that have the
 * position. *positions gets the length of the array, which is that of the longest text. Returns NULL and 0 if out of
 * range. An attention sink appears as a peak. */
MHA_API const double *mha_heads_received(const mha_heads *heads, int64_t layer, int64_t head, int64_t *positions);

/* Return the map [n, n] (row = query) of one head, and the n tokens of the text with their offsets; NULL without
 * keep_maps. After mha_heads_measure_data, which has no text, only the token ids are set, and all other fields are
 * 0. */
MHA_API const float *mha_heads_map(const mha_heads *heads, int64_t layer, int64_t head);
MHA_API const mha_encoding *mha_heads_tokens(const mha_heads *heads);

#ifdef __cplusplus
}
#endif
#endif

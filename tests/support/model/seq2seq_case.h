/* seq2seq_case.h - small encoder-decoders, their recorded inputs, and their logits, for tests. */
#ifndef TEST_SEQ2SEQ_CASE_H
#define TEST_SEQ2SEQ_CASE_H

#include "mha/seq2seq.h"
#include "support/model/model_case.h"

enum { SEQ2SEQ_T5, SEQ2SEQ_T5_GATED, SEQ2SEQ_BART, SEQ2SEQ_MBART, SEQ2SEQ_MARIAN, SEQ2SEQ_FAMILIES };

/* The names of the folders below tests/golden/data/seq2seq. */
extern const char *const seq2seq_names[SEQ2SEQ_FAMILIES];

mha_model *seq2seq_open(mha_ctx *ctx, int family);
/* Opens the recorded results of a family. */
mha_file *seq2seq_recorded(int family);

/* A source and a target. `input` points to `source`, so the struct must not be moved. */
typedef struct seq2seq_pair {
    mha_model_input source, input;
    int32_t *source_ids, *target_ids;
    uint8_t *mask; /* of the source; NULL = none */
} seq2seq_pair;

/* Reads PREFIX/input_ids, PREFIX/attention_mask if present, and PREFIX/decoder_input_ids. */
void seq2seq_read(const mha_file *file, const char *prefix, seq2seq_pair *pair);
void seq2seq_free(seq2seq_pair *pair);

/* Returns the logits [B, T, vocab] of an input. The caller must free them. */
float *seq2seq_logits(const mha_model *model, const mha_model_input *input);

#endif

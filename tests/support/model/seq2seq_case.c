/* seq2seq_case.c - implements seq2seq_case.h. */
#include "support/model/seq2seq_case.h"

#include "support/check.h"
#include <stdio.h>
#include <stdlib.h>

const char *const seq2seq_names[SEQ2SEQ_FAMILIES] = {"t5", "t5-gated", "bart", "mbart", "marian"};

mha_model *seq2seq_open(mha_ctx *ctx, int family)
{
    char folder[64];
    snprintf(folder, sizeof folder, "seq2seq/%s", seq2seq_names[family]);
    return case_open(ctx, folder);
}

mha_file *seq2seq_recorded(int family)
{
    char path[64];
    snprintf(path, sizeof path, "seq2seq/%s.safetensors", seq2seq_names[family]);
    return case_file(path);
}

/* Reads ids [L] or [B, L], and sets batch and length of `input`. */
static int32_t *read_ids(const mha_file *file, const char *name, mha_model_input *input)
{
    const mha_tensor *tensor = mha_file_find(file, name);
    assert_non_null(tensor);
    const bool rows = tensor->rank == 2;
    int32_t *ids = case_ints(file, name);
    *input = (mha_model_input){.size = sizeof *input, .batch = rows ? tensor->shape[0] : 1};
    input->length = tensor->shape[rows ? 1 : 0];
    input->ids = ids;
    return ids;
}

void seq2seq_read(const mha_file *file, const char *prefix, seq2seq_pair *p)
{
    char name[64];
    *p = (seq2seq_pair){0};
    snprintf(name, sizeof name, "%s/input_ids", prefix);
    p->source_ids = read_ids(file, name, &p->source);
    snprintf(name, sizeof name, "%s/decoder_input_ids", prefix);
    p->target_ids = read_ids(file, name, &p->input);
    p->input.source = &p->source;
    snprintf(name, sizeof name, "%s/attention_mask", prefix);
    if (!mha_file_find(file, name)) return;
    const int64_t count = p->source.batch * p->source.length;
    int32_t *ones = case_ints(file, name);
    p->mask = malloc((size_t)count);
    for (int64_t n = 0; n < count; n++)
        p->mask[n] = ones[n] != 0;
    p->source.mask = p->mask;
    free(ones);
}

void seq2seq_free(seq2seq_pair *p)
{
    free(p->source_ids);
    free(p->target_ids);
    free(p->mask);
}

float *seq2seq_logits(const mha_model *model, const mha_model_input *input)
{
    const int64_t count = input->batch * input->length * mha_model_describe(model)->vocab;
    float *logits = calloc((size_t)count, sizeof *logits);
    const mha_model_output output = {.size = sizeof output, .logits = logits};
    mha_error err = {0};
    if (mha_model_forward(model, input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
    return logits;
}

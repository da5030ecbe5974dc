/* grads_case.c - implements grads_case.h. */
#include "support/passes/grads_case.h"

#include "support/check.h"
#include "support/model/model_case.h"
#include <stdlib.h>
#include <string.h>

enum { B = GRADS_B, L = GRADS_L };

const char *const grads_families[] = {
    "models/bert-mlm-tiny", "models/gpt2-tiny", "models/gemma2-tiny", "families2/gpt-neox-parallel",
    "families2/granite",    "families2/phi3",   "families2/olmo2",    "families2/modernbert",
    "families2/gemma3",     "families2/cohere", "families2/mpnet"};
int32_t grads_ids[B * L], grads_labels[B * L];
uint8_t grads_mask[B * L];

mha_model_input grads_input(const mha_model *model, bool holes)
{
    const int32_t vocab = (int32_t)mha_model_describe(model)->vocab;
    for (int n = 0; n < B * L; n++) {
        grads_ids[n] = (7 + 31 * n) % vocab;
        grads_labels[n] = n % 3 == 1 ? MHA_IGNORE : (5 + 17 * n) % vocab;
        grads_mask[n] = holes ? n != 3 && n != L + 1 : n < L + 8;
        if (!grads_mask[n]) grads_labels[n] = MHA_IGNORE;
    }
    return (mha_model_input){
        .size = sizeof(mha_model_input), .batch = B, .length = L, .ids = grads_ids, .mask = grads_mask};
}

mha_model_grads *grads_create(const mha_model *model, int no_parameters, int recompute)
{
    const mha_model_grads_options o = {.size = sizeof o, .no_parameters = no_parameters, .recompute = recompute};
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    if (mha_model_grads_create(model, &o, &grads, &err) != MHA_OK) fail_msg("%s", err.message);
    return grads;
}

double grads_loss(mha_model_grads *grads, const mha_model_input *input, const float *gates, float *dgates)
{
    const mha_model_loss_args args = {sizeof args, .labels = grads_labels, .dgates = dgates};
    mha_model_input gated = *input;
    double loss = 0;
    mha_error err = {0};
    gated.gates = gates;
    if (mha_model_grads_loss(grads, &gated, &args, &loss, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    return loss;
}

const mha_named_tensor *grads_tensor(const mha_model_grads *grads, const char *name)
{
    int64_t count = 0;
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    for (int64_t n = 0; n < count; n++)
        if (strcmp(list[n].name, name) == 0) return &list[n];
    fail_msg("gradients must include \"%s\"", name);
    return NULL;
}

/* Copies all gradients to one array and returns the number of elements. */
static int64_t gather(const mha_model_grads *grads, float *to)
{
    int64_t count = 0, total = 0;
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    for (int64_t n = 0; n < count; n++) {
        const int64_t elements = case_elements(&list[n]);
        memcpy(to + total, list[n].data, (size_t)elements * sizeof *to);
        total += elements;
    }
    return total;
}

float *grads_all(const mha_model_grads *grads, int64_t *count)
{
    float *all = malloc((size_t)1 << 21);
    *count = gather(grads, all);
    assert_true(*count > 0 && (size_t)*count * sizeof *all <= (size_t)1 << 21);
    return all;
}

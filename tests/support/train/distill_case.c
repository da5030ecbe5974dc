/* distill_case.c - implements distill_case.h. */
#include "support/train/distill_case.h"

#include "support/check.h"
#include "support/model/train_case.h"
#include "train/trainer_struct.h"
#include <stdlib.h>
#include <string.h>

const char *const distill_folders[FOLDERS] = {GPT2, "families/llama-f32", "models/gemma2-tiny", "models/bert-mlm-tiny",
                                              BERT};
int32_t distill_ids[B * L], distill_labels[B * L];
uint8_t distill_mask[B * L];

mha_model_input distill_input(void)
{
    train_texts(1, B, L, distill_ids);
    for (int n = 0; n < B * L; n++) {
        distill_mask[n] = n / L != 1 || n % L < 7;
        distill_labels[n] = distill_mask[n] && n % 3 == 0 ? distill_ids[n] : MHA_IGNORE;
    }
    return (mha_model_input){
        .size = sizeof(mha_model_input), .batch = B, .length = L, .ids = distill_ids, .mask = distill_mask};
}

distill_student distill_prune(const mha_model *teacher)
{
    const mha_model_info *info = mha_model_describe(teacher);
    uint8_t *keep = malloc((size_t)(info->layers * info->heads));
    distill_student p = {0};
    mha_error err = {0};
    memset(keep, 1, (size_t)(info->layers * info->heads));
    memset(keep + info->heads - 2, 0, 2);
    if (mha_prune(teacher, keep, NULL, &p.made, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_model_edit_open(p.made, &p.model, &err) != MHA_OK) fail_msg("%s", err.message);
    free(keep);
    return p;
}

void distill_release(distill_student *p)
{
    mha_model_free(p->model);
    mha_model_edit_free(p->made);
}

mha_trainer *distill_trainer(const mha_model *model, const mha_train_options *o)
{
    mha_trainer *t = NULL;
    mha_error err = {0};
    if (mha_trainer_create(model, o, &t, &err) != MHA_OK) fail_msg("%s", err.message);
    return t;
}

mha_train_batch distill_batch(const mha_trainer *t, const mha_model_input *input)
{
    return (mha_train_batch){.input = input, .labels = mha_trainer_model(t)->info.causal ? NULL : distill_labels};
}

mha_train_report distill_step(mha_trainer *t, const mha_model_input *input)
{
    mha_train_report report;
    mha_error err = {0};
    const mha_train_batch batch = distill_batch(t, input);
    if (mha_trainer_step(t, &batch, 1, &report, &err) != MHA_OK) fail_msg("%s", err.message);
    return report;
}

mha_model_distill distill_terms(const mha_model *m, double of_labels)
{
    mha_model_distill d = {.hidden = 0.7, .text = 1.3};
    if (m->lm_head) d.logits = 0.6, d.temperature = 1.5, d.labels = of_labels;
    return d;
}

/* test_distill_steps.c - tests invariants of a step of distillation: sums over batches, bitwise identical results,
 * batches without labels, and failed allocations. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include "support/train/distill_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_batches_of_a_step_are_summed(void **state)
{
    (void)state;
    const mha_model_input whole = distill_input();
    for (int f = 0; f < FOLDERS; f++) {
        mha_model *teacher = case_open(NULL, distill_folders[f]);
        distill_student p = distill_prune(teacher);
        const mha_train_options o = {.size = sizeof o, .teacher = teacher, .distill = distill_terms(teacher, 0.4)};
        mha_train_report report[3];
        for (int n = 0; n < 3; n++) {
            mha_trainer *t = distill_trainer(p.model, &o);
            mha_model_input part[2] = {whole, whole};
            int64_t starts[] = {0, L, L + 7, 2 * L + 7};
            int32_t packed[2 * L + 7], of_packed[2 * L + 7];
            mha_train_batch batch[2] = {distill_batch(t, &part[0]), distill_batch(t, &part[1])};
            if (n == 1) { /* a batch of one text and a batch of two texts */
                part[0].batch = 1, part[1].batch = 2;
                part[1].ids += L, part[1].mask += L;
                if (batch[1].labels) batch[1].labels += L;
            }
            if (n == 2) { /* packed texts instead of padded texts */
                memcpy(packed, distill_ids, (L + 7) * sizeof *distill_ids),
                    memcpy(packed + L + 7, distill_ids + 2 * L, L * sizeof *distill_ids);
                memcpy(of_packed, distill_labels, (L + 7) * sizeof *distill_ids);
                memcpy(of_packed + L + 7, distill_labels + 2 * L, L * sizeof *distill_ids);
                part[0].ids = packed, part[0].mask = NULL, part[0].starts = starts;
                if (batch[0].labels) batch[0].labels = of_packed;
            }
            assert_int_equal(mha_trainer_step(t, batch, n == 1 ? 2 : 1, &report[n], NULL), MHA_OK);
            mha_trainer_free(t);
        }
        for (int n = 1; n < 3; n++) {
            assert_int_equal(report[0].labels, report[n].labels);
            assert_true(fabs(report[0].loss - report[n].loss) < 1e-6 * (1 + report[0].loss));
            assert_true(fabs(report[0].norm - report[n].norm) < 1e-5 * (1 + report[0].norm));
        }
        distill_release(&p);
        mha_model_free(teacher);
    }
}

/* Results must be bitwise identical for any number of threads, with and without recomputation, and after saving and
 * resuming. */
static void test_bits(void **state)
{
    (void)state;
    const mha_model_input input = distill_input();
    const char *folder = files_folder();
    for (int f = 0; f < FOLDERS; f++) {
        float *first = NULL;
        for (int n = 0; n < 4; n++) {
            mha_ctx *ctx = NULL;
            const mha_ctx_options c = {.size = sizeof c, .threads = n % 3 + 1};
            assert_int_equal(mha_ctx_create(&c, &ctx, NULL), MHA_OK);
            mha_model *teacher = case_open(ctx, distill_folders[f]);
            distill_student p = distill_prune(teacher);
            const mha_trainer_save_options over = {.size = sizeof over, .overwrite = 1};
            const mha_train_options o = {.size = sizeof o,
                                         .decay = 0.1,
                                         .clip = 1,
                                         .recompute = n == 1,
                                         .teacher = teacher,
                                         .distill = distill_terms(teacher, 0.4)};
            mha_trainer *t = distill_trainer(p.model, &o);
            mha_error err = {0};
            int64_t count = 0;
            distill_step(t, &input);
            if (n == 3) {
                if (mha_trainer_save(t, folder, &over, &err) != MHA_OK) fail_msg("%s", err.message);
                mha_trainer_free(t);
                if (mha_trainer_resume(ctx, folder, &o, &t, &err) != MHA_OK) fail_msg("%s", err.message);
            }
            distill_step(t, &input);
            float *weights = train_weights(t, &count);
            if (first) assert_memory_equal(first, weights, (size_t)count * sizeof *first);
            if (first) free(weights);
            if (!first) first = weights;
            mha_trainer_free(t);
            distill_release(&p);
            mha_model_free(teacher);
            mha_ctx_free(ctx);
        }
        free(first);
    }
    files_remove(folder);
}

/* Without labels, a loss with a label term must be NaN and its gradients 0. Without the label term, the loss of the
 * hidden states must be finite and its gradients not 0. */
static void test_no_label_is_no_loss(void **state)
{
    (void)state;
    const mha_model_input input = distill_input();
    mha_model *model = case_open(NULL, GPT2);
    distill_student p = distill_prune(model);
    mha_model_grads *g = NULL;
    mha_error err = {0};
    int64_t count = 0, counted = -1;
    double loss = 0;
    for (int n = 0; n < B * L; n++)
        distill_labels[n] = MHA_IGNORE;
    mha_model_loss_args args = {.size = sizeof args,
                                .labels = distill_labels,
                                .teacher = model,
                                .distill = {.labels = 0.5, .hidden = 0.5, .text = 1}};
    assert_int_equal(mha_model_grads_create(p.model, NULL, &g, &err), MHA_OK);
    for (int round = 0; round < 2; round++) {
        if (mha_model_grads_loss(g, &input, &args, &loss, &counted, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_true(round ? isfinite(loss) : isnan(loss));
        const mha_named_tensor *list = mha_model_grads_list(g, &count);
        double max = 0;
        for (int64_t n = 0; n < count; n++)
            for (int64_t i = 0; i < list[n].shape[0] * (list[n].rank == 2 ? list[n].shape[1] : 1); i++)
                max = fmax(max, fabs((double)((const float *)list[n].data)[i]));
        assert_true(round ? max > 0 : max == 0);
        args.distill.labels = 0;
    }
    mha_model_grads_free(g);
    distill_release(&p);
    mha_model_free(model);
}

/* ---- failed allocations ---- */

/* With a budget of 0, 1, 2, ... allocations, each failed step must return MHA_ERR_MEMORY. The next step must
 * succeed. */
static void test_no_memory(void **state)
{
    (void)state;
    const mha_model_input input = distill_input();
    counting memory = {.budget = -1};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_open(ctx, "models/bert-mlm-tiny");
    const mha_train_options o = {.size = sizeof o, .teacher = model, .distill = distill_terms(model, 0.5)};
    mha_trainer *t = distill_trainer(model, &o);
    const mha_train_batch batch = distill_batch(t, &input);
    mha_status status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        memory.budget = memory.calls + n;
        status = mha_trainer_step(t, &batch, 1, NULL, NULL);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
    }
    memory.budget = -1;
    assert_true(n > 10);
    distill_step(t, &input);
    mha_trainer_free(t);
    mha_model_free(model);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_of_a_step_are_summed),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_no_label_is_no_loss),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_circuits_knockout.c - laws of attention knockouts in several families: removing all keys of a head must equal
 * removing its output, and removing masked keys must change nothing. */
#include "support/check.h"
#include "support/circuits/prompt_pair_case.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdlib.h>

static mha_error err;

static void removing_all_keys_removes_the_head(void **state)
{
    (void)state;
    static const char *const folders[] = {"heads/tinylm", "models/bert-mlm-tiny", "models/gemma2-tiny",
                                          "families2/gpt-oss", "families2/bloom"};
    for (int n = 0; n < 5; n++) {
        mha_model *model = case_open(NULL, folders[n]);
        const mha_model_info *info = mha_model_describe(model);
        mha_prompt_pair *pair = prompt_pair_of(model, prompt_pair_clean, prompt_pair_corrupted, T - 1);
        const mha_attention_edge head = {info->layers - 1, 1, -1, -1};
        float *gates = malloc((size_t)(info->layers * info->heads) * sizeof *gates);
        float *logits = malloc((size_t)(T * info->vocab) * sizeof *logits);
        for (int64_t h = 0; h < info->layers * info->heads; h++)
            gates[h] = h != head.layer * info->heads + head.head;
        const mha_model_input in = {
            .size = sizeof in, .batch = 1, .length = T, .ids = prompt_pair_clean, .gates = gates};
        const mha_model_output out = {.size = sizeof out, .logits = logits};
        assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_OK);
        const float *last = logits + (T - 1) * info->vocab;
        for (int mode = 0; mode < 2; mode++) {
            double got[M];
            if (mha_knockout(pair, MHA_RUN_CLEAN, (mha_knockout_mode)mode, &head, 1, got, &err) != MHA_OK)
                fail_msg("%s", err.message);
            if (!(fabs(got[0] - ((double)last[11] - (double)last[12])) <= 1e-5))
                fail_msg("%s: mode %d: got %g", folders[n], mode, got[0]);
        }
        free(gates);
        free(logits);
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* Keys that the causal mask excludes have no weight, so that removing them gives the metrics of the run to the bit. */
static void removing_masked_keys_changes_nothing(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "heads/tinylm");
    mha_prompt_pair *pair = prompt_pair_of(model, prompt_pair_clean, prompt_pair_corrupted, T - 1);
    const mha_attention_edge edge = {-1, -1, 1, 3};
    double clean[M];
    assert_int_equal(mha_prompt_pair_metrics(pair, MHA_RUN_CLEAN, clean, &err), MHA_OK);
    for (int mode = 0; mode < 2; mode++) {
        double got[M];
        assert_int_equal(mha_knockout(pair, MHA_RUN_CLEAN, (mha_knockout_mode)mode, &edge, 1, got, &err), MHA_OK);
        assert_memory_equal(got, clean, sizeof got);
    }
    mha_prompt_pair_free(pair);
    mha_model_free(model);
}

/* The difference of two logits of mha_knockout_forward is bitwise identical to the metric of mha_knockout in mode
 * renorm. Without edges, all logits are bitwise identical to those of mha_model_forward. */
static void a_pass_without_edges_equals_the_knockout(void **state)
{
    (void)state;
    static const char *const folders[] = {"heads/tinylm", "models/bert-mlm-tiny", "families2/gpt-oss"};
    static const mha_attention_edge edges[] = {{-1, -1, T - 1, 2}, {0, 1, -1, 1}, {1, 0, T - 1, -1}};
    for (int n = 0; n < 3; n++) {
        mha_model *model = case_open(NULL, folders[n]);
        const int64_t vocab = mha_model_describe(model)->vocab;
        mha_prompt_pair *pair = prompt_pair_of(model, prompt_pair_clean, prompt_pair_corrupted, T - 1);
        float *logits = malloc((size_t)(2 * T * vocab) * sizeof *logits), *last = logits + (T - 1) * vocab;
        const mha_model_input in = {.size = sizeof in, .batch = 1, .length = T, .ids = prompt_pair_clean};
        const mha_model_output out = {.size = sizeof out, .logits = logits},
                               plain = {.size = sizeof plain, .logits = logits + T * vocab};
        double got[M];
        assert_int_equal(mha_knockout_forward(model, &in, &out, edges, 3, &err), MHA_OK);
        assert_int_equal(mha_knockout(pair, MHA_RUN_CLEAN, MHA_KNOCKOUT_RENORM, edges, 3, got, &err), MHA_OK);
        assert_true(got[0] == (double)last[11] - (double)last[12]);
        assert_int_equal(mha_knockout_forward(model, &in, &out, edges, 0, &err), MHA_OK);
        assert_int_equal(mha_model_forward(model, &in, &plain, &err), MHA_OK);
        assert_memory_equal(logits, logits + T * vocab, (size_t)(T * vocab) * sizeof *logits);
        free(logits);
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* Masked tokens stay masked: a batch with padding at the start or the end gives the logits of each sequence alone, with
 * the same edges removed. */
static void removed_edges_keep_the_mask_of_the_batch(void **state)
{
    (void)state;
    enum { PAD = 2, L = T + PAD };
    static const char *const folders[] = {"heads/tinylm", "models/bert-mlm-tiny", "families/llama"};
    for (int n = 0; n < 6; n++) {
        const int first = n < 3 ? PAD : 0; /* of the second sequence */
        mha_model *model = case_open(NULL, folders[n % 3]);
        const int64_t vocab = mha_model_describe(model)->vocab;
        int32_t ids[2 * L], positions[2 * L];
        uint8_t mask[2 * L];
        for (int i = 0; i < 2 * L; i++) {
            const int at = i % L - (i < L ? 0 : first);
            mask[i] = i < L || (at >= 0 && at < T);
            ids[i] = i < L ? prompt_pair_corrupted[i % T] : mask[i] ? prompt_pair_clean[at] : 7;
            positions[i] = mask[i] ? at : 0;
        }
        float *logits = malloc((size_t)((2 * L + T) * vocab) * sizeof *logits), *alone = logits + 2 * L * vocab;
        const mha_attention_edge edges[] = {{0, -1, first + 4, first + 1}, {0, 0, first + 5, -1}},
                                 same[] = {{0, -1, 4, 1}, {0, 0, 5, -1}};
        const mha_model_input in = {.size = sizeof in,
                                    .batch = 2,
                                    .length = L,
                                    .ids = ids,
                                    .mask = mask,
                                    .positions = positions},
                              one = {.size = sizeof one, .batch = 1, .length = T, .ids = prompt_pair_clean};
        const mha_model_output out = {.size = sizeof out, .logits = logits},
                               of_one = {.size = sizeof of_one, .logits = alone};
        if (mha_knockout_forward(model, &in, &out, edges, 2, &err) != MHA_OK) fail_msg("%s", err.message);
        if (mha_knockout_forward(model, &one, &of_one, same, 2, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int64_t i = 0; i < T * vocab; i++)
            if (!(fabsf(logits[(L + first) * vocab + i] - alone[i]) < 1e-4F))
                fail_msg("%s, padding before token %d: logit %d must be %g (got %g)", folders[n % 3], first, (int)i,
                         (double)alone[i], (double)logits[(L + first) * vocab + i]);
        free(logits);
        mha_model_free(model);
    }
}

/* A model without logits of tokens has knockouts: without any key, a head writes nothing, as with a gate of 0. */
static void knockouts_do_not_require_logits(void **state)
{
    (void)state;
    static const char *const folders[] = {"models/bert-tiny", "families2/electra-discriminator"};
    static const mha_attention_edge edge = {0, 1, -1, -1};
    for (int n = 0; n < 2; n++) {
        mha_model *model = case_open(NULL, folders[n]);
        const mha_model_info *info = mha_model_describe(model);
        const int64_t count = T * info->hidden, heads = info->layers * info->heads;
        float *got = malloc((size_t)(2 * count + heads) * sizeof *got), *want = got + count, *gates = want + count;
        for (int64_t h = 0; h < heads; h++)
            gates[h] = h != 1;
        const mha_model_input in = {.size = sizeof in, .batch = 1, .length = T, .ids = prompt_pair_clean},
                              gated = {
                                  .size = sizeof in, .batch = 1, .length = T, .ids = prompt_pair_clean, .gates = gates};
        const mha_model_output out = {.size = sizeof out, .last_hidden = got},
                               plain = {.size = sizeof plain, .last_hidden = want};
        if (mha_knockout_forward(model, &in, &out, &edge, 1, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(mha_model_forward(model, &gated, &plain, &err), MHA_OK);
        for (int64_t i = 0; i < count; i++)
            assert_true(fabsf(got[i] - want[i]) < 1e-5F);
        free(got);
        mha_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(removing_all_keys_removes_the_head),
        cmocka_unit_test(removing_masked_keys_changes_nothing),
        cmocka_unit_test(a_pass_without_edges_equals_the_knockout),
        cmocka_unit_test(removed_edges_keep_the_mask_of_the_batch),
        cmocka_unit_test(knockouts_do_not_require_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

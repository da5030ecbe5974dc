/* test_model_layers_heads.c - tests measuring, pruning and regrouping of heads in models with composed layers. */
#include "mha/heads.h"
#include "mha/prune.h"
#include "mha/regroup.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/composed.h"
#include "support/model/save_edit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 11 };

static void test_heads_are_measured(void **state)
{
    (void)state;
    int32_t ids[B * L];
    const int64_t starts[] = {0, L, 2 * L};
    composed_texts(ids);
    for (int n = 0; n < 2 * COMPOSED_CASES; n++) {
        mha_model *model = case_create(NULL, composed_config(&composed_cases[n / 2], n % 2), SEED);
        mha_head_data *data = NULL;
        mha_heads *heads = NULL;
        assert_int_equal(mha_head_data_of_ids(model, ids, starts, B, NULL, &data, NULL), MHA_OK);
        assert_int_equal(mha_heads_measure_data(model, data, NULL, &heads, NULL), MHA_OK);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int head = 0; head < mha_model_describe(model)->heads_per_layer[layer]; head++) {
                const double entropy = mha_heads_value(heads, layer, head, MHA_HEAD_ENTROPY);
                assert_true(entropy > 0 && entropy < log2(L));
                assert_true(mha_heads_value(heads, layer, head, MHA_HEAD_INDUCTION_PROBE) >= 0);
            }
        mha_heads_free(heads);
        mha_head_data_free(data);
        mha_model_free(model);
    }
}

/* Removing the first group of heads of every layer except the last must equal gates of 0 for these heads. */
static void test_heads_are_pruned(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * COMPOSED_CASES; n++) {
        const char *folder = files_folder();
        mha_model *model = case_create(NULL, composed_config(&composed_cases[n / 2], n % 2), SEED);
        const mha_model_info *info = mha_model_describe(model);
        const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
        uint8_t keep[LAYERS * HEADS];
        float gates[LAYERS * B * HEADS];
        for (int i = 0; i < LAYERS * HEADS; i++) {
            const int layer = i / HEADS, keys = (int)info->key_heads_per_layer[layer];
            const int values = (int)info->value_heads_per_layer[layer], min = keys < values ? keys : values;
            const int group = (int)info->heads_per_layer[layer] / min;
            keep[i] = min == 1 || i % HEADS >= group;
            for (int b = 0; b < B; b++)
                gates[(layer * B + b) * HEADS + i % HEADS] = keep[i];
        }
        save_pruned(model, keep, NULL, folder);
        mha_model *pruned = case_model(NULL, folder, &bare);
        float *want = composed_logits(model, gates), *got = composed_logits(pruned, NULL);
        case_near("pruned", got, want, B * L * V, 2e-5);
        assert_int_equal(mha_model_describe(pruned)->parameters < info->parameters,
                         memchr(keep, 0, sizeof keep) != NULL);
        free(want), free(got);
        mha_model_free(pruned), mha_model_free(model);
        files_remove(folder);
    }
}

/* Removing or regrouping heads with `compatible` must fail for these models, which other programs do not support. */
static void test_compatible_is_rejected(void **state)
{
    (void)state;
    static const char *const keys[] = {"mha.feed_forward", "mha.attention"};
    for (int n = 0; n < 2; n++) {
        const mha_prune_options prune = {.size = sizeof prune, .compatible = 1};
        const mha_regroup_options regroup = {.size = sizeof regroup, .value_heads = 2, .compatible = 1};
        mha_model *model = case_create(NULL, composed_config(&composed_cases[n ? 4 : 1], true), SEED);
        mha_model_edit *edit = NULL;
        mha_error err = {0};
        uint8_t keep[LAYERS * HEADS];
        memset(keep, 1, sizeof keep);
        assert_int_equal(mha_prune(model, keep, &prune, &edit, &err), MHA_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, keys[n]));
        assert_int_equal(mha_regroup(model, &regroup, &edit, &err), MHA_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, keys[n]));
        mha_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_are_measured),
        cmocka_unit_test(test_heads_are_pruned),
        cmocka_unit_test(test_compatible_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

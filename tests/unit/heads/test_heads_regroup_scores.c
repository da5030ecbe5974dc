/* test_heads_regroup_scores.c - tests merging of key and value heads that is weighted by scores: the weighted mean, and
 * the closed form, in which a higher score of a head must reduce its error. */
#include "support/check.h"
#include "support/heads/regroup_case.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 6, WIDTH = 48, HEAD = 8 }; /* dimensions of bert-mlm-tiny */

/* Returns a tensor of layer 0 that the edit changes. */
static const float *tensor_of(const mha_model_edit *edit, const char *name)
{
    int64_t count;
    const mha_named_tensor *list = mha_model_edit_tensors(edit, &count);
    for (int64_t n = 0; n < count; n++)
        if (strstr(list[n].name, "layer.0.") && strstr(list[n].name, name)) return list[n].data;
    fail_msg("edit must have tensor %s", name);
    return NULL;
}

static float *original(const char *name)
{
    char whole[128];
    mha_file *file = case_file("models/bert-mlm-tiny/model.safetensors");
    snprintf(whole, sizeof whole, "bert.encoder.layer.0.attention.%s.weight", name);
    float *x = case_floats(file, whole);
    mha_file_free(file);
    return x;
}

/* With equal scores, the weights must be bitwise identical to those without scores. With different scores, the mean
 * must be weighted by the scores. */
static void test_weighted_mean(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "models/bert-mlm-tiny");
    mha_head_data *data = regroup_data(model);
    double same[2 * HEADS], scores[2 * HEADS];
    for (int n = 0; n < 2 * HEADS; n++) {
        same[n] = 0.7;
        scores[n] = n % 2 ? 1 : 3;
    }
    mha_model_edit *plain = regroup_edit(model, REGROUP(.key_heads = 3, .value_heads = 2, .fit = data));
    mha_model_edit *equal = regroup_edit(model, REGROUP(.key_heads = 3, .value_heads = 2, .fit = data, .scores = same));
    int64_t count = 0;
    const mha_named_tensor *a = mha_model_edit_tensors(plain, &count), *b = mha_model_edit_tensors(equal, &count);
    for (int64_t n = 0; n < count; n++) {
        size_t cells = 1;
        for (int d = 0; d < a[n].rank; d++)
            cells *= (size_t)a[n].shape[d];
        assert_memory_equal(a[n].data, b[n].data, cells * sizeof(float));
    }
    mha_model_edit *mean =
        regroup_edit(model, REGROUP(.key_heads = 3, .value_heads = 3, .method = MHA_REGROUP_MEAN, .scores = scores));
    float *whole = original("self.key");
    const float *key = tensor_of(mean, "attention.self.key.weight");
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < HEAD * WIDTH; i++) {
            const double first = (double)whole[2 * g * HEAD * WIDTH + i];
            const double second = (double)whole[(2 * g + 1) * HEAD * WIDTH + i];
            assert_true(fabs((double)key[g * HEAD * WIDTH + i] - (3 * first + second) / 4) < 1e-7);
        }
    free(whole);
    mha_model_edit_free(plain);
    mha_model_edit_free(equal);
    mha_model_edit_free(mean);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* Returns the squared error of the product Wo_h Wv_h for head h of layer 0, if values are shared by pairs of heads in
 * their original order. */
static double loss_of(const mha_model_edit *edit, int head)
{
    const float *value = tensor_of(edit, "attention.self.value.weight");
    const float *out = tensor_of(edit, "attention.output.dense.weight");
    float *old_value = original("self.value"), *old_out = original("output.dense");
    double sum = 0;
    for (int i = 0; i < WIDTH; i++)
        for (int j = 0; j < WIDTH; j++) {
            double lost = 0;
            for (int d = 0; d < HEAD; d++) {
                const int at = i * WIDTH + head * HEAD + d;
                lost += (double)old_out[at] * (double)old_value[(head * HEAD + d) * WIDTH + j];
                lost -= (double)out[at] * (double)value[(head / 2 * HEAD + d) * WIDTH + j];
            }
            sum += lost * lost;
        }
    free(old_value);
    free(old_out);
    return sum;
}

/* In the closed form, a higher score of one head of a pair must reduce the error of that head and increase the error of
 * the other head. */
static void test_weighted_closed(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "models/bert-mlm-tiny");
    mha_head_data *data = regroup_data(model);
    double scores[2 * HEADS], lost[3][2];
    for (int high = 0; high < 3; high++) { /* 0: high score for the even heads, 1: for the odd heads, 2: equal scores */
        for (int n = 0; n < 2 * HEADS; n++)
            scores[n] = high == 2 || n % 2 == high ? 1 : 0.05;
        mha_model_edit *made = regroup_edit(model, REGROUP(.value_heads = 3, .fit = data, .scores = scores, PUBLISHED));
        for (int head = 0; head < 2; head++)
            lost[high][head] = loss_of(made, head);
        mha_model_edit_free(made);
    }
    print_message(
        "error of head 0: %.3f (high score), %.3f (equal scores), %.3f (low score); of head 1: %.3f, %.3f, %.3f\n",
        lost[0][0], lost[2][0], lost[1][0], lost[1][1], lost[2][1], lost[0][1]);
    assert_true(lost[0][0] < lost[2][0] && lost[2][0] < lost[1][0]);
    assert_true(lost[1][1] < lost[2][1] && lost[2][1] < lost[0][1]);
    mha_head_data_free(data);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weighted_mean),
        cmocka_unit_test(test_weighted_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

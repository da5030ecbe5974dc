/* test_head_steps.c - tests the steps of one head: the scores and values must give its output. */
#include "mha/model.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <string.h>

enum { L = 7, LAYER = 1, D = 8 };

static const int32_t ids[L] = {3, 9, 4, 11, 5, 9, 2};

typedef struct request {
    const mha_model *model;
    int checked;
} request;

/* The output of a head without gates is the softmax of the scores of the visible keys times the values. */
static void check_head(const mha_head_steps *s, int64_t row)
{
    double weights[L], sum = 0;
    for (int64_t j = 0; j <= row; j++)
        sum += weights[j] = exp(mha_head_steps_score(s, j));
    for (int64_t d = 0; d < D; d++) {
        double want = 0;
        for (int64_t j = 0; j <= row; j++)
            want += weights[j] / sum * (double)s->v[j * s->stride + d];
        assert_true(fabs(want - (double)s->context[d]) < 1e-6);
    }
}

static int check_layer(void *user, const mha_model_activations *a)
{
    request *r = user;
    mha_head_steps s;
    mha_error err = {0};
    if (a->layer != LAYER) return 0;
    for (int64_t head = 0; head < a->heads; head++)
        for (int64_t row = 0; row < a->rows; row++, r->checked++) {
            assert_int_equal(mha_model_head_steps(r->model, a, head, row, &s, &err), MHA_OK);
            assert_int_equal(s.rows, L);
            assert_int_equal(s.head_dim, D);
            assert_true(s.k == a->k + head / 2 * D);
            check_head(&s, row);
        }
    assert_true(isnan(mha_head_steps_score(&s, -1)) && isnan(mha_head_steps_score(&s, L)));
    assert_int_equal(mha_model_head_steps(r->model, a, a->heads, 0, &s, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "head must be from 0 to 3 (got 4)"));
    assert_int_equal(mha_model_head_steps(r->model, a, 0, L, &s, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "row must be from 0 to 6 (got 7)"));
    assert_int_equal(mha_model_head_steps(r->model, a, 0, 0, NULL, &err), MHA_ERR_ARG);
    return 0;
}

static void scores_and_values_give_the_output(void **state)
{
    (void)state;
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    mha_model *model = case_model(NULL, "families/llama-f32", &bare);
    request r = {.model = model};
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = L, .ids = ids};
    const mha_model_output out = {.size = sizeof out, .on_activations = check_layer, .user = &r};
    assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
    assert_int_equal(r.checked, 4 * L);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_and_values_give_the_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

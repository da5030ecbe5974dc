/* test_train_dropout.c - tests dropout in training: the fraction of dropped elements, and the masks, which may depend
 * only on seed, step, batch and position. tests/live/test_train_torch.py compares dropout at each site with
 * transformers, using the masks of this library. */
#include "layer/row_dropout.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT2 "models/gpt2-tiny"

static const char *const folders[] = {GPT2, "families/llama-f32", "models/gemma2-tiny", "models/bert-mlm-tiny"};
enum { FOLDERS = sizeof folders / sizeof *folders, B = 2, L = 14 };

static const mha_train_options all_sites = {.size = sizeof all_sites,
                                            .rate = 1e-2,
                                            .clip = 1,
                                            .dropout = {.embedding = 0.1, .attention = 0.2, .residual = 0.3},
                                            .seed = 7};

/* ---- dropout of rows of a matrix ---- */

/* Returns the first word of Philox4x32-10 (Salmon et al. 2011) for a key and a counter. */
static uint32_t philox(uint64_t key, const uint32_t counter[4])
{
    uint32_t c[4], k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    memcpy(c, counter, sizeof c);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9U, k1 += 0xBB67AE85U) {
        const uint64_t a = (uint64_t)0xD2511F53U * c[0], b = (uint64_t)0xCD9E8D57U * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1,
                                  (uint32_t)a};
        memcpy(c, next, sizeof c);
    }
    return c[0];
}

static void test_philox_is_the_published_one(void **state)
{
    (void)state;
    const uint32_t zeros[4] = {0}, ones[4] = {~0U, ~0U, ~0U, ~0U};
    assert_int_equal(philox(0, zeros), 0x6627E8D5U); /* test vectors of Random123 (kat_vectors) */
    assert_int_equal(philox(~UINT64_C(0), ones), 0x408F276DU);
}

static void test_rows_are_dropped_by_their_counters(void **state)
{
    (void)state;
    enum { ROWS = 3 * 37, WIDTH = 75 };
    static const double shares[] = {0.1, 0.5, 0.9};
    static float x[ROWS * WIDTH];
    const mha_layer_input in = {.size = sizeof in, .batch = 3, .length = 37};
    for (int s = 0; s < 3; s++) {
        const mha__drop drop = {shares[s], UINT64_C(0x123456789ABCDEF0) + (uint64_t)s};
        int64_t dropped = 0;
        for (int n = 0; n < ROWS * WIDTH; n++)
            x[n] = 1;
        mha__drop_rows(NULL, &drop, &in, WIDTH, x);
        for (uint32_t r = 0; r < ROWS; r++)
            for (uint32_t c = 0; c < WIDTH; c++) {
                const uint32_t counter[] = {r / 37, 0, c, r % 37};
                const bool gone = philox(drop.key, counter) < drop.share * 0x1p32;
                assert_true(x[r * WIDTH + c] == (gone ? 0 : (float)(1 / (1 - drop.share))));
                dropped += gone;
            }
        const double share = (double)dropped / (ROWS * WIDTH),
                     sigma = sqrt(drop.share * (1 - drop.share) / (ROWS * WIDTH));
        /* the fraction of dropped elements must be as expected */
        assert_true(fabs(share - drop.share) < 4 * sigma);
        /* the mean must be the same as without dropout */
        assert_true(fabs((1 - share) / (1 - drop.share) - 1) < 4 * sigma / (1 - drop.share));
    }
}

/* The masks must be the same for packed sequences and for rows divided over several calls. A NaN that is dropped must
 * become 0. */
static void test_packed_rows_drop_the_same(void **state)
{
    (void)state;
    enum { WIDTH = 40, MAX = 23 };
    static const int64_t starts[] = {0, 5, 6, 29, 40};
    static float padded[4 * MAX * WIDTH], packed[40 * WIDTH];
    const mha__drop drop = {0.25, 99};
    const mha_layer_input whole = {.size = sizeof whole, .batch = 4, .length = MAX},
                          one = {.size = sizeof one, .batch = 1, .length = 40, .starts = starts, .sequences = 4};
    for (int n = 0; n < 4 * MAX * WIDTH; n++)
        padded[n] = 1;
    for (int n = 0; n < 40 * WIDTH; n++)
        packed[n] = 1;
    mha__drop_rows(NULL, &drop, &whole, WIDTH, padded);
    mha__drop_rows(NULL, &drop, &one, WIDTH, packed);
    for (int b = 0; b < 4; b++)
        assert_memory_equal(padded + (int64_t)b * MAX * WIDTH, packed + starts[b] * WIDTH,
                            (size_t)((starts[b + 1] - starts[b]) * WIDTH) * sizeof(float));
    for (int n = 0; n < 40 * WIDTH; n++)
        packed[n] = NAN;
    mha__drop_rows(NULL, &drop, &one, WIDTH, packed);
    for (int64_t n = 0; n < 5 * WIDTH; n++)
        assert_true(padded[n] == 0 ? packed[n] == 0 : isnan(packed[n]));
}

/* ---- dropout in the forward and backward pass ---- */

typedef struct pass {
    mha_model *model;
    mha_model_grads *grads;
    mha_model_input input;
    int32_t ids[B * L];
    const int32_t *labels;
} pass;

static void open_pass(pass *p, const char *folder)
{
    mha_error err = {0};
    train_texts(1, B, L, p->ids);
    p->model = case_open(NULL, folder);
    if (mha_model_grads_create(p->model, NULL, &p->grads, &err) != MHA_OK) fail_msg("%s", err.message);
    p->input = (mha_model_input){.size = sizeof p->input, .batch = B, .length = L, .ids = p->ids};
    p->labels = mha_model_describe(p->model)->causal ? NULL : p->ids;
}

static void close_pass(pass *p)
{
    mha_model_grads_free(p->grads);
    mha_model_free(p->model);
}

static double loss_of(const pass *p, const mha_model_dropout *dropout, float *dembeddings)
{
    const mha_model_loss_args args = {
        .size = sizeof args, .labels = p->labels, .dembeddings = dembeddings, .loss_only = !dembeddings};
    double loss = 0;
    mha_error err = {0};
    assert_int_equal(mha_model_grads_dropout(p->grads, dropout, &err), MHA_OK);
    if (mha_model_grads_loss(p->grads, &p->input, &args, &loss, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    return loss;
}

/* Dropout at a single site must change the loss, with different results for different seeds. With rates of 0, the loss
 * must equal the loss without dropout. */
static void test_every_site_counts(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        pass p;
        open_pass(&p, folders[f]);
        const double none = loss_of(&p, NULL, NULL);
        for (int site = 0; site < 3; site++) {
            mha_model_dropout d = {site == 0 ? 0.2 : 0, site == 1 ? 0.2 : 0, site == 2 ? 0.2 : 0, 1};
            const double loss = loss_of(&p, &d, NULL);
            assert_true(loss != none && loss == loss_of(&p, &d, NULL));
            d.seed = 2;
            assert_true(loss != loss_of(&p, &d, NULL));
        }
        assert_true(loss_of(&p, &(mha_model_dropout){0, 0, 0, 5}, NULL) == none);
        close_pass(&p);
    }
}

/* At low rates, the mean loss over many masks must be near the loss without dropout, since elements that are not
 * dropped are scaled up. */
static void test_mean_over_masks(void **state)
{
    (void)state;
    enum { MASKS = 200 };
    pass p;
    open_pass(&p, GPT2);
    double mean = 0;
    const double none = loss_of(&p, NULL, NULL);
    for (uint64_t seed = 0; seed < MASKS; seed++)
        mean += loss_of(&p, &(mha_model_dropout){0.02, 0.02, 0.02, seed}, NULL) / MASKS;
    assert_true(fabs(mean - none) < 0.01 * none);
    close_pass(&p);
}

/* The derivative of the loss along its gradient must equal the norm of the gradient, since the forward and backward
 * pass have the same masks. */
static void test_gradient_against_differences(void **state)
{
    (void)state;
    const mha_model_dropout d = {0.1, 0.2, 0.3, 11};
    for (int f = 0; f < FOLDERS; f++) {
        double loss[2], squares = 0;
        mha_trainer *t = train_case(NULL, folders[f], NULL);
        pass p = {.model = t->model, .grads = t->grads};
        train_texts(1, B, L, p.ids);
        for (int n = 0; n < B * L; n++)
            /* replaces the padding token, whose embedding has no gradient */
            if (p.ids[n] == 0) p.ids[n] = 1;
        p.input = (mha_model_input){.size = sizeof p.input, .batch = B, .length = L, .ids = p.ids};
        p.labels = t->model->info.causal ? NULL : p.ids;
        float *dembeddings = calloc((size_t)(B * L * t->model->info.hidden), sizeof *dembeddings);
        loss_of(&p, &d, dembeddings);
        for (int64_t n = 0; n < t->count; n++)
            for (int64_t i = 0; i < t->parameter[n].count; i++)
                squares += pow((double)((const float *)t->gradients[n].data)[i], 2);
        const double norm = sqrt(squares), step = 0x1p-11;
        for (int side = 0; side < 2; side++) {
            const float by = (float)((side ? -2 : 1) * step / norm);
            train_shift(t, by);
            loss[side] = loss_of(&p, &d, NULL);
        }
        const double slope = (loss[0] - loss[1]) / (2 * step);
        if (fabs(slope - norm) > 1e-3 * norm)
            fail_msg("%s: expected derivative %g from differences, got %g from the gradient", folders[f], slope, norm);
        free(dembeddings);
        mha_trainer_free(t);
    }
}

/* A backward pass must use the masks of its forward pass, even if the dropout rates were changed after it. */
static void test_backward_uses_the_dropout_of_its_forward_call(void **state)
{
    (void)state;
    pass p;
    open_pass(&p, GPT2);
    const int64_t count = B * L * mha_model_describe(p.model)->hidden;
    const mha_model_dropout d = {0.1, 0.2, 0.3, 3}, other = {0.5, 0, 0.1, 4};
    float *got[2], *dhidden = calloc((size_t)count, sizeof *dhidden);
    for (int64_t n = 0; n < count; n++)
        dhidden[n] = (float)(n % 7) - 3;
    for (int turn = 0; turn < 2; turn++) {
        got[turn] = calloc((size_t)count, sizeof(float));
        const mha_model_gradient g = {.size = sizeof g, .last_hidden = dhidden, .embeddings = got[turn]};
        assert_int_equal(mha_model_grads_dropout(p.grads, &d, NULL), MHA_OK);
        assert_int_equal(mha_model_grads_forward(p.grads, &p.input, NULL, NULL), MHA_OK);
        if (turn) assert_int_equal(mha_model_grads_dropout(p.grads, &other, NULL), MHA_OK);
        assert_int_equal(mha_model_grads_backward(p.grads, &g, NULL), MHA_OK);
    }
    assert_memory_equal(got[0], got[1], (size_t)count * sizeof(float));
    free(got[0]), free(got[1]), free(dhidden);
    close_pass(&p);
}

/* ---- dropout in training steps ---- */

static void test_bits_for_any_threads_and_recompute(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++)
        train_check_threads(folders[f], &all_sites, 3, L);
}

static void test_resumed_run_drops_the_same(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++)
        train_check_resume(folders[f], &all_sites, B, L);
}

/* The masks must differ between two batches of the same text in a step, between two steps, and between two seeds. */
static void test_batches_and_steps_have_their_own(void **state)
{
    (void)state;
    int32_t ids[B * L];
    double loss[4];
    train_texts(1, B, L, ids);
    const mha_model_input input = {.size = sizeof input, .batch = B, .length = L, .ids = ids};
    const mha_train_batch twice[] = {{.input = &input}, {.input = &input}};
    for (int n = 0; n < 4; n++) {
        mha_train_options o = all_sites;
        mha_train_report report;
        o.rate = 1e-30; /* so small that the weights practically do not change */
        if (n == 3) o.seed++;
        mha_trainer *t = train_case(NULL, GPT2, &o);
        for (int step = 0; step < (n == 2 ? 2 : 1); step++)
            assert_int_equal(mha_trainer_step(t, twice, n == 1 ? 2 : 1, &report, NULL), MHA_OK);
        loss[n] = report.loss;
        mha_trainer_free(t);
    }
    for (int n = 0; n < 4; n++)
        for (int m = 0; m < n; m++)
            assert_true(loss[n] != loss[m]);
}

static void test_zero_dropout_and_losses_change_nothing(void **state)
{
    (void)state;
    const mha_train_options plain = {.size = sizeof plain, .rate = 1e-2, .clip = 1},
                            zeros = {.size = sizeof zeros, .rate = 1e-2, .clip = 1, .seed = 12};
    int32_t ids[B * L];
    double loss[2];
    train_texts(1, B, L, ids);
    const mha_model_input input = {.size = sizeof input, .batch = B, .length = L, .ids = ids};
    const mha_train_batch batch = {.input = &input};
    for (int f = 0; f < FOLDERS - 1; f++) {
        mha_trainer *t[] = {train_case(NULL, folders[f], &plain), train_case(NULL, folders[f], &zeros),
                            train_case(NULL, folders[f], &all_sites)};
        assert_int_equal(mha_trainer_loss(t[0], &batch, 1, &loss[0], NULL, NULL), MHA_OK);
        assert_int_equal(mha_trainer_loss(t[2], &batch, 1, &loss[1], NULL, NULL), MHA_OK);
        assert_true(loss[0] == loss[1]);
        assert_true(train_on(t[2], B, L).loss != train_on(t[0], B, L).loss);
        train_on(t[1], B, L);
        train_expect_alike(t[0], t[1]);
        for (int n = 0; n < 3; n++)
            mha_trainer_free(t[n]);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const double bad[] = {-0.1, 1, 1.5, NAN};
    static const char *const names[] = {"dropout.embedding", "dropout.attention", "dropout.residual"};
    pass p;
    open_pass(&p, GPT2);
    for (int n = 0; n < 12; n++) {
        mha_train_options o = {.size = sizeof o};
        double *const shares[] = {&o.dropout.embedding, &o.dropout.attention, &o.dropout.residual};
        mha_trainer *t = NULL;
        mha_error err = {0};
        char want[120];
        *shares[n / 4] = bad[n % 4];
        assert_int_equal(mha_trainer_create(p.model, &o, &t, &err), MHA_ERR_ARG);
        snprintf(want, sizeof want, "mha_train_options: %s must be in [0, 1) (got %g)", names[n / 4], bad[n % 4]);
        assert_string_equal(err.message, want);
        const mha_model_dropout d = {o.dropout.embedding, o.dropout.attention, o.dropout.residual, 0};
        assert_int_equal(mha_model_grads_dropout(p.grads, &d, &err), MHA_ERR_ARG);
        snprintf(want, sizeof want, "mha_model_dropout: %s must be in [0, 1) (got %g)", strchr(names[n / 4], '.') + 1,
                 bad[n % 4]);
        assert_string_equal(err.message, want);
    }
    assert_int_equal(mha_model_grads_dropout(NULL, NULL, NULL), MHA_ERR_ARG);
    close_pass(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_is_the_published_one),
        cmocka_unit_test(test_rows_are_dropped_by_their_counters),
        cmocka_unit_test(test_packed_rows_drop_the_same),
        cmocka_unit_test(test_every_site_counts),
        cmocka_unit_test(test_mean_over_masks),
        cmocka_unit_test(test_gradient_against_differences),
        cmocka_unit_test(test_backward_uses_the_dropout_of_its_forward_call),
        cmocka_unit_test(test_bits_for_any_threads_and_recompute),
        cmocka_unit_test(test_resumed_run_drops_the_same),
        cmocka_unit_test(test_batches_and_steps_have_their_own),
        cmocka_unit_test(test_zero_dropout_and_losses_change_nothing),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

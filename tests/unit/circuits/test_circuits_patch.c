/* test_circuits_patch.c - laws of activation patching and attribution in many families: grouped heads, experts,
 * parallel blocks, post-norm blocks, sinks, softcaps and relative positions.
 *
 * Patching the complete input of a layer must give metrics that are bitwise identical to those of the other run. A
 * part that is equal in both runs, or that cannot reach the measured token, must give those of the base run, and a
 * sweep in several batches those of single parts. */
#include "support/check.h"
#include "support/circuits/prompt_pair_case.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static mha_error err;

static const char *const decoders[] = {"families/gpt2",         "families/llama",     "families/qwen3",
                                       "models/gemma2-tiny",    "families2/gpt-neox", "families2/gpt-neox-parallel",
                                       "families2/mixtral",     "families2/gpt-oss",  "families2/bloom",
                                       "families2/deepseek-v3", "families2/granite",  "families2/cohere",
                                       "families2/olmo2",       "families2/opt",      "heads/tinylm"};
static const char *const encoders[] = {"models/bert-mlm-tiny"};
enum { DECODERS = sizeof decoders / sizeof *decoders, ENCODERS = sizeof encoders / sizeof *encoders };

static int64_t count_of(const mha_prompt_pair *pair, mha_site site, mha_patch_by by)
{
    int64_t shape[3], count = M;
    const int rank = mha_patch_shape(pair, site, by, shape);
    for (int n = 0; n < rank; n++)
        count *= shape[n];
    return rank ? count : 0;
}

static void metrics_of(const mha_prompt_pair *pair, mha_prompt_run run, double *metrics)
{
    assert_int_equal(mha_prompt_pair_metrics(pair, run, metrics, &err), MHA_OK);
}

static void same(const char *what, const double *got, const double *want)
{
    if (memcmp(got, want, M * sizeof *got) != 0)
        fail_msg("%s: metrics must be %.17g %.17g %.17g (got %.17g %.17g %.17g)", what, want[0], want[1], want[2],
                 got[0], got[1], got[2]);
}

/* ---- patching everything ---- */

static void together(const char *what, const mha_prompt_pair *pair, const mha_patch_part *parts, int64_t count,
                     const double *want)
{
    double got[M];
    if (mha_patch_together(pair, MHA_DENOISE, parts, count, got, &err) != MHA_OK) fail_msg("%s", err.message);
    same(what, got, want);
}

/* Every set of parts that cuts the model in two gives the clean run. */
static void whole_cuts(const char *folder, const mha_prompt_pair *pair, const mha_model_info *info)
{
    double clean[M], corrupted[M];
    metrics_of(pair, MHA_RUN_CLEAN, clean);
    metrics_of(pair, MHA_RUN_CORRUPTED, corrupted);
    assert_true(clean[0] != corrupted[0]);
    together(folder, pair, NULL, 0, corrupted);
    for (int64_t layer = 0; layer < info->layers; layer++) {
        together(folder, pair, &(mha_patch_part){MHA_SITE_RESID_PRE, layer, -1, -1}, 1, clean);
        together(folder, pair, &(mha_patch_part){MHA_SITE_RESID_POST, layer, -1, -1}, 1, clean);
        const mha_patch_part inner[] = {
            {MHA_SITE_RESID_PRE, layer, -1, 2}, {MHA_SITE_RESID_PRE, layer, -1, -1}, {MHA_SITE_Q, layer, -1, -1},
            {MHA_SITE_K, layer, -1, -1},        {MHA_SITE_V, layer, -1, -1},         {MHA_SITE_PATTERN, layer, 0, -1},
            {MHA_SITE_Z, layer, -1, -1},        {MHA_SITE_ATTN_OUT, layer, -1, -1},  {MHA_SITE_MLP_OUT, layer, -1, -1}};
        together(folder, pair, inner, sizeof inner / sizeof *inner, clean);
    }
}

static void patching_everything_gives_the_other_run(void **state)
{
    (void)state;
    for (int n = 0; n < DECODERS + ENCODERS; n++) {
        const char *folder = n < DECODERS ? decoders[n] : encoders[n - DECODERS];
        mha_model *model = case_open(NULL, folder);
        mha_prompt_pair *pair =
            prompt_pair_of(model, prompt_pair_clean, prompt_pair_corrupted, n < DECODERS ? T - 1 : 4);
        whole_cuts(folder, pair, mha_model_describe(model));
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* ---- parts without an effect ---- */

/* Checks the parts before the token that differs, and in a decoder after the measured one. */
static void check_idle(const char *folder, const mha_prompt_pair *pair, mha_site site, const double *base)
{
    int64_t shape[3];
    const bool heads = mha_patch_shape(pair, site, MHA_BY_HEAD_POSITION, shape) == 3;
    const mha_patch_by by = heads ? MHA_BY_HEAD_POSITION : MHA_BY_POSITION;
    const int64_t all = count_of(pair, site, by);
    double *got = prompt_pair_room(all);
    const mha_status status = mha_patch(pair, site, by, MHA_DENOISE, got, &err);
    /* parallel blocks have no resid_mid */
    if (status != MHA_OK && !(status == MHA_ERR_UNSUPPORTED && site == MHA_SITE_RESID_MID))
        fail_msg("%s, %s: %s", folder, mha_site_name(site), err.message);
    for (int64_t n = 0; status == MHA_OK && n < all / M; n++) {
        const double one[M] = {got[n], got[all / M + n], got[2 * (all / M) + n]};
        if (n % T < 2 || n % T > mha_prompt_pair_position(pair)) same(folder, one, base);
    }
    free(got);
}

static void equal_parts_change_nothing(void **state)
{
    (void)state;
    for (int n = 0; n < DECODERS; n++) {
        double base[M];
        mha_model *model = case_open(NULL, decoders[n]);
        mha_prompt_pair *pair = prompt_pair_of(model, prompt_pair_clean, prompt_pair_corrupted, T - 2);
        metrics_of(pair, MHA_RUN_CORRUPTED, base);
        for (int site = 0; site < MHA_SITES; site++)
            check_idle(decoders[n], pair, (mha_site)site, base);
        mha_prompt_pair_free(pair);
        pair = prompt_pair_of(model, prompt_pair_clean, prompt_pair_clean, T - 1);
        assert_int_equal(mha_patch_passes(pair, MHA_SITE_Z, MHA_BY_HEAD, MHA_NOISE), 0);
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* ---- sweeps and single parts ---- */

/* A sweep runs in batches and skips queries, keys and values where it can; one part at a time must have its bits. */
static void check_sweep(const mha_prompt_pair *pair, mha_site site, mha_patch_direction direction)
{
    int64_t shape[3];
    const int64_t all = count_of(pair, site, MHA_BY_HEAD_POSITION);
    double *got = prompt_pair_room(all);
    mha_patch_shape(pair, site, MHA_BY_HEAD_POSITION, shape);
    if (mha_patch(pair, site, MHA_BY_HEAD_POSITION, direction, got, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t n = 0; n < all / M; n++) {
        double one[M];
        const mha_patch_part part = {site, n / T / shape[1], n / T % shape[1], n % T};
        const double swept[M] = {got[n], got[all / M + n], got[2 * (all / M) + n]};
        if (mha_patch_together(pair, direction, &part, 1, one, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int m = 0; m < M; m++)
            if (!(fabs(swept[m] - one[m]) <= 1e-5))
                fail_msg("%s: got %g, alone %g", mha_site_name(site), swept[m], one[m]);
        if (site != MHA_SITE_PATTERN) same(mha_site_name(site), swept, one);
    }
    free(got);
}

static void sweeps_equal_single_parts(void **state)
{
    (void)state;
    static const char *const folders[] = {"heads/tinylm", "models/bert-mlm-tiny", "models/gemma2-tiny"};
    for (int n = 0; n < 3; n++) {
        mha_model *model = case_open(NULL, folders[n]);
        mha_prompt_pair *pair = prompt_pair_of(model, prompt_pair_clean, prompt_pair_corrupted, T - 1);
        for (int site = MHA_SITE_Q; site <= MHA_SITE_PATTERN; site++)
            check_sweep(pair, (mha_site)site, n % 2 ? MHA_NOISE : MHA_DENOISE);
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* ---- attribution ---- */

/* The sum over heads of attr(z) is attr(attn_out). */
static void attributions_add_up(void **state)
{
    (void)state;
    static const char *const folders[] = {"heads/tinylm", "models/bert-mlm-tiny", "models/gemma2-tiny",
                                          "families2/mixtral", "families2/gpt-oss"};
    for (int n = 0; n < 5; n++) {
        mha_model *model = case_open(NULL, folders[n]);
        const mha_model_info *info = mha_model_describe(model);
        mha_prompt_pair *pair = prompt_pair_of(model, prompt_pair_clean, prompt_pair_corrupted, T - 1);
        double *z = prompt_pair_room(count_of(pair, MHA_SITE_Z, MHA_BY_HEAD_POSITION));
        double *out = prompt_pair_room(count_of(pair, MHA_SITE_ATTN_OUT, MHA_BY_POSITION));
        if (mha_attribution(pair, MHA_ESTIMATE_ATTR, MHA_SITE_Z, MHA_BY_HEAD_POSITION, MHA_DENOISE, z, &err) ||
            mha_attribution(pair, MHA_ESTIMATE_ATTR, MHA_SITE_ATTN_OUT, MHA_BY_POSITION, MHA_DENOISE, out, &err))
            fail_msg("%s: %s", folders[n], err.message);
        for (int64_t r = 0; r < M * info->layers; r++)
            for (int64_t t = 0; t < T; t++) {
                double sum = 0;
                for (int64_t h = 0; h < info->heads; h++)
                    sum += z[(r * info->heads + h) * T + t];
                if (!(fabs(sum - out[r * T + t]) <= 2e-5 * (1 + fabs(sum))))
                    fail_msg("%s: attr of attn_out must be %g (got %g)", folders[n], sum, out[r * T + t]);
            }
        free(z);
        free(out);
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* The integrated gradients of the input of layer 0, summed over the tokens, must be the difference of both runs, up
 * to the error of the mean of 8 gradients. Models with experts are excluded, since the selection of experts is not
 * continuous. */
static void integrated_gradients_are_complete(void **state)
{
    (void)state;
    static const char *const folders[] = {"heads/tinylm", "models/bert-mlm-tiny", "models/gemma2-tiny"};
    for (int n = 0; n < 3; n++) {
        mha_model *model = case_open(NULL, folders[n]);
        const int64_t layers = mha_model_describe(model)->layers;
        mha_prompt_pair *pair = prompt_pair_of(model, prompt_pair_clean, prompt_pair_corrupted, T - 1);
        double *in = prompt_pair_room(count_of(pair, MHA_SITE_RESID_PRE, MHA_BY_POSITION)), clean[M], corrupted[M];
        metrics_of(pair, MHA_RUN_CLEAN, clean);
        metrics_of(pair, MHA_RUN_CORRUPTED, corrupted);
        if (mha_attribution(pair, MHA_ESTIMATE_IG, MHA_SITE_RESID_PRE, MHA_BY_POSITION, MHA_DENOISE, in, &err) !=
            MHA_OK)
            fail_msg("%s: %s", folders[n], err.message);
        for (int m = 0; m < M; m++) {
            const double want = clean[m] - corrupted[m];
            double sum = 0;
            for (int64_t t = 0; t < T; t++)
                sum += in[m * layers * T + t];
            if (!(fabs(sum - want) <= 0.08 * fabs(want)))
                fail_msg("%s: the sum must be within 8 %% of %g (got %g)", folders[n], want, sum);
        }
        free(in);
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patching_everything_gives_the_other_run),
        cmocka_unit_test(equal_parts_change_nothing),
        cmocka_unit_test(sweeps_equal_single_parts),
        cmocka_unit_test(attributions_add_up),
        cmocka_unit_test(integrated_gradients_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

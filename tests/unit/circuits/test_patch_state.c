/* test_patch_state.c - patching that is canceled and then resumed from its state file must be bitwise identical to
 * uninterrupted patching; the state of other prompts, another site, granularity, direction or model is rejected, and so
 * is a damaged file. */
#include "mha/circuits.h"
#include "mha/io.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { T = 40, M = MHA_CIRCUIT_METRICS };

static char folder[] = "/tmp/mha-patch-XXXXXX", path[sizeof folder + sizeof "/state"];
static mha_error err;

/* ---- a context that cancels patching ---- */

typedef struct stop {
    int reports;    /* number of progress reports after which to cancel; 0 = never */
    int64_t passes; /* finished passes in the first report; -1 = no report yet */
} stop;

static int on_progress(void *user, const char *what, int64_t done, int64_t total)
{
    stop *s = user;
    (void)total;
    if (strcmp(what, "patch") != 0) return 0;
    if (s->passes < 0) s->passes = done;
    return s->reports > 0 && --s->reports == 0;
}

static mha_ctx *make_context(stop *s)
{
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .progress = on_progress, .progress_user = s};
    s->passes = -1;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    return ctx;
}

/* ---- patching ---- */

/* What is patched; `word` is the token that differs between the prompts. */
typedef struct subject {
    const char *folder;
    int32_t word, answer;
    mha_site site;
    mha_patch_by by;
    mha_patch_direction direction;
} subject;

static const subject usual = {"heads/tinylm", 33, 11, MHA_SITE_Z, MHA_BY_HEAD_POSITION, MHA_DENOISE};

/* Patches with the state file; *out is the caller's. */
static mha_status patch(const subject *of, stop *s, const char *state, double **out, int64_t *count)
{
    mha_prompt_pair *pair;
    int32_t clean[T], corrupted[T];
    int64_t shape[3];
    for (int t = 0; t < T; t++)
        clean[t] = corrupted[t] = (int32_t)(9 + 5 * t % 23);
    corrupted[1] = of->word;
    mha_ctx *ctx = make_context(s);
    mha_model *model = case_open(ctx, of->folder);
    const mha_prompt_pair_options o = {
        .size = sizeof o, .clean = clean, .corrupted = corrupted, .length = T, .answer = of->answer, .wrong = 12};
    if (mha_prompt_pair_create(model, &o, &pair, &err) != MHA_OK) fail_msg("%s", err.message);
    const int rank = mha_patch_shape(pair, of->site, of->by, shape);
    *count = M;
    for (int n = 0; n < rank; n++)
        *count *= shape[n];
    *out = calloc((size_t)*count, sizeof **out);
    const mha_status status = state ? mha_patch_resume(pair, of->site, of->by, of->direction, state, *out, &err)
                                    : mha_patch(pair, of->site, of->by, of->direction, *out, &err);
    mha_prompt_pair_free(pair);
    mha_model_free(model);
    mha_ctx_free(ctx);
    return status;
}

static mha_status patch_only(const subject *of, int reports, int64_t *passes)
{
    double *out;
    int64_t count;
    stop s = {.reports = reports};
    const mha_status status = patch(of, &s, path, &out, &count);
    if (passes) *passes = s.passes;
    free(out);
    return status;
}

/* ---- tests ---- */

static void canceled_patching_resumes(void **state)
{
    (void)state;
    const subject subjects[] = {usual,
                                {"heads/tinylm", 33, 11, MHA_SITE_RESID_PRE, MHA_BY_POSITION, MHA_NOISE},
                                {"families/gpt2", 33, 11, MHA_SITE_PATTERN, MHA_BY_HEAD_POSITION, MHA_DENOISE}};
    for (size_t n = 0; n < sizeof subjects / sizeof *subjects; n++) {
        double *want, *got;
        int64_t count, passes = 0;
        stop never = {0};
        remove(path);
        if (patch(&subjects[n], &never, NULL, &want, &count) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(patch_only(&subjects[n], 1, NULL), MHA_ERR_CANCELED);
        assert_int_equal(patch_only(&subjects[n], 2, &passes), MHA_ERR_CANCELED); /* a resumed run, canceled again */
        assert_true(passes > 0);
        if (patch(&subjects[n], &never, path, &got, &count) != MHA_OK) fail_msg("%s", err.message);
        assert_true(never.passes > passes);
        assert_memory_equal(got, want, (size_t)count * sizeof *got);
        free(got);
        if (patch(&subjects[n], &never, path, &got, &count) != MHA_OK) fail_msg("%s", err.message); /* complete */
        assert_memory_equal(got, want, (size_t)count * sizeof *got);
        free(got);
        free(want);
    }
}

static void refused(const subject *of, const char *what)
{
    assert_int_equal(patch_only(of, 0, NULL), MHA_ERR_ARG);
    if (!strstr(err.message, path) || !strstr(err.message, what)) fail_msg("\"%s\": no \"%s\"", err.message, what);
}

static void other_states_are_refused(void **state)
{
    (void)state;
    subject other[6];
    for (int n = 0; n < 6; n++)
        other[n] = usual;
    other[0].word = 34;
    other[1].answer = 13;
    other[2].site = MHA_SITE_Q;
    other[3].by = MHA_BY_HEAD;
    other[4].direction = MHA_NOISE;
    other[5].folder = "families/gpt2";
    remove(path);
    if (patch_only(&usual, 0, NULL) != MHA_OK) fail_msg("%s", err.message);
    refused(&other[0], "other data");
    refused(&other[1], "other data");
    refused(&other[2], "not \"patch q by head and position, denoise\"");
    refused(&other[3], "not \"patch z by head, denoise\"");
    refused(&other[4], "not \"patch z by head and position, noise\"");
    refused(&other[5], "another model");
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    remove(path);
    if (patch_only(&usual, 0, NULL) != MHA_OK) fail_msg("%s", err.message);
    assert_int_equal(truncate(path, 500), 0);
    assert_int_equal(patch_only(&usual, 0, NULL), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(canceled_patching_resumes),
                                       cmocka_unit_test(other_states_are_refused),
                                       cmocka_unit_test(damaged_files_are_refused)};
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/state", folder);
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    rmdir(folder);
    return failures;
}

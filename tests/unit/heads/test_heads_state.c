/* test_heads_state.c - a measurement that is canceled or killed and then resumed from its state file must be bitwise
 * identical to an uninterrupted measurement. State files of other measurements must be rejected. */
#include "base/error.h"
#include "mha/heads.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXTS = 120, MAX = 40, VOCAB = 500, BATCH = 200 };

static int32_t ids[TEXTS * MAX];
static int64_t starts[TEXTS + 1];

/* ---- a context that cancels or kills the measurement ---- */

typedef struct stop {
    double at; /* fraction of the tokens after which to stop; 0 = never */
    bool kill;
    int64_t tiles; /* number of tiles in the first batch after which to stop; 0 = never */
    double begun;  /* fraction of the tokens already measured at the first callback; -1 = no callback yet */
} stop;

static int on_progress(void *user, const char *what, int64_t done, int64_t total)
{
    stop *s = user;
    const double share = (double)done / (double)total;
    if (strcmp(what, "measure heads") != 0) return 0;
    if (s->begun < 0) s->begun = share;
    if (s->at == 0 || share < s->at) return 0;
    if (s->kill) raise(SIGKILL);
    return 1;
}

static int on_tile(void *user, int64_t begun, int64_t total)
{
    stop *s = user;
    (void)begun, (void)total;
    return s->begun >= 0 && s->tiles > 0 && --s->tiles == 0;
}

static mha_ctx *make_context(stop *s)
{
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options,
                                     .threads = 1,
                                     .progress = on_progress,
                                     .progress_user = s,
                                     .between_tiles = on_tile,
                                     .between_tiles_user = s};
    s->begun = -1;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    return ctx;
}

static mha_head_data *make_data(const mha_model *model, int64_t batch_tokens)
{
    mha_head_data *data;
    mha_error err = {0};
    rng r = rng_make(11, 1);
    for (int64_t i = 0; i < TEXTS; i++)
        starts[i + 1] = starts[i] + rng_range(&r, 1, MAX);
    for (int64_t i = 0; i < starts[TEXTS]; i++)
        ids[i] = (int32_t)rng_range(&r, 0, VOCAB - 1);
    const mha_head_data_options how = {.size = sizeof how, .batch_tokens = batch_tokens};
    if (mha_head_data_of_ids(model, ids, starts, TEXTS, &how, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    return data;
}

/* One measurement: when to stop it, its inputs and its results. */
typedef struct run {
    stop stop;
    mha_ctx *ctx;
    mha_model *model;
    mha_heads *heads; /* NULL if the measurement failed */
    mha_status status;
    mha_error err;
} run;

static run *measure(stop stop, const mha_model_options *weights, const char *state, int64_t batch_tokens)
{
    run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->stop = stop;
    r->ctx = make_context(&r->stop);
    r->model = case_model(r->ctx, "models/bert-tiny", weights);
    mha_head_data *data = make_data(r->model, batch_tokens);
    const mha_heads_options options = {.size = sizeof options, .state = state};
    r->status = mha_heads_measure_data(r->model, data, &options, &r->heads, &r->err);
    assert_int_equal(r->status == MHA_OK, r->heads != NULL);
    mha_head_data_free(data);
    return r;
}

static void release(run *r)
{
    mha_heads_free(r->heads);
    mha_model_free(r->model);
    mha_ctx_free(r->ctx);
    free(r);
}

/* Returns an uninterrupted measurement. */
static run *whole(const char *state)
{
    run *r = measure((stop){0}, NULL, state, BATCH);
    if (r->status != MHA_OK) fail_msg("%s", r->err.message);
    return r;
}

static void same(const mha_heads *a, const mha_heads *b)
{
    for (int64_t l = 0; l < mha_heads_layers(a); l++)
        for (int64_t h = 0; h < mha_heads_count(a, l); h++) {
            int64_t n;
            for (mha_head_metric m = 0; m < MHA_HEAD_METRICS; m++) {
                const double x = mha_heads_value(a, l, h, m), y = mha_heads_value(b, l, h, m);
                assert_memory_equal(&x, &y, sizeof x);
            }
            const double *received = mha_heads_received(a, l, h, &n);
            assert_memory_equal(received, mha_heads_received(b, l, h, NULL), (size_t)n * sizeof *received);
        }
}

/* ---- interrupted measurements ---- */

static char path[512];

static void canceled_runs_resume(void **state)
{
    (void)state;
    const char *folder = files_folder();
    snprintf(path, sizeof path, "%s/state", folder);
    run *want = whole(NULL);
    for (int n = 1; n <= 4; n++) {
        run *r = measure((stop){.at = 0.2 * n}, NULL, path, BATCH);
        assert_int_equal(r->status, MHA_ERR_CANCELED);
        assert_true(n == 1 ? r->stop.begun == 0 : r->stop.begun >= 0.2 * (n - 1)); /* no batch may be measured twice */
        release(r);
    }
    run *got = whole(path), *again = whole(path);
    assert_true(got->stop.begun >= 0.8);
    same(got->heads, want->heads);
    assert_true(again->stop.begun == 1); /* all results are in the file, so only the probe may be computed */
    same(again->heads, want->heads);
    release(again);
    release(got);
    release(want);
    assert_int_equal(files_count(folder), 1);
    files_remove(folder);
}

/* If a measurement is canceled within a batch, some heads of the batch may already be in its sums. The state file must
 * still contain the state before that batch. */
static void runs_canceled_within_a_batch_resume(void **state)
{
    (void)state;
    run *want = whole(NULL);
    for (int tiles = 1; tiles <= 8; tiles++) {
        const char *folder = files_folder();
        size_t before, after;
        snprintf(path, sizeof path, "%s/state", folder);
        release(measure((stop){.at = 0.4}, NULL, path, BATCH));
        char *was = files_read(path, &before);
        run *r = measure((stop){.tiles = tiles}, NULL, path, BATCH);
        char *is = files_read(path, &after);
        assert_int_equal(r->status, MHA_ERR_CANCELED);
        assert_true(before == after && memcmp(was, is, after) == 0);
        run *got = whole(path);
        assert_true(got->stop.begun >= 0.4 && got->stop.begun < 1);
        same(got->heads, want->heads);
        free(was), free(is), release(r), release(got);
        files_remove(folder);
    }
    release(want);
}

/* Each child process is killed during the measurement and resumes from the state file of the previous child. */
static void killed_runs_resume(void **state)
{
    (void)state;
    const char *folder = files_folder();
    snprintf(path, sizeof path, "%s/state", folder);
    run *want = whole(NULL);
    for (int n = 0; n < 3; n++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            measure((stop){.at = 0.3 + 0.2 * n}, NULL, path, BATCH);
            measure((stop){.at = 0.4 + 0.2 * n, .kill = true}, NULL, path, BATCH);
            _exit(1);
        }
        int end;
        assert_int_equal(waitpid(child, &end, 0), child);
        assert_true(WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL);
    }
    run *got = whole(path);
    assert_true(got->stop.begun >= 0.7);
    same(got->heads, want->heads);
    release(got);
    release(want);
    files_remove(folder);
}

/* The measurement must fail with the message `sentence` after the path, and must leave the file unchanged. */
static void refused(const char *file, const mha_model_options *weights, int64_t batch_tokens, const char *sentence)
{
    size_t before, after;
    char *was = files_read(file, &before), want[1024];
    run *r = measure((stop){0}, weights, file, batch_tokens);
    char *is = files_read(file, &after);
    snprintf(want, sizeof want, "%s: %s", mha__quote(&(mha__quoted){0}, file, strlen(file)), sentence);
    assert_int_equal(r->status, MHA_ERR_ARG);
    assert_string_equal(r->err.message, want);
    assert_true(before == after && memcmp(was, is, after) == 0);
    free(was);
    free(is);
    release(r);
}

/* A state file of a model with another embedding must be rejected, even if the results are equal because the word of
 * that embedding is absent from the texts. */
static void a_model_with_another_embedding(void **state)
{
    (void)state;
    const char *folder = files_folder(), name[] = "embeddings.word_embeddings.weight";
    mha_file *file;
    snprintf(path, sizeof path, "%s/state", folder);
    assert_int_equal(mha_checkpoint_open(NULL, MHA_TEST_DATA "/models/bert-tiny", NULL, &file, NULL), MHA_OK);
    const mha_tensor *stored = mha_file_find(file, name);
    assert_true(stored && stored->dtype == MHA_F32 && stored->shape[0] > VOCAB);
    float *words = malloc(stored->bytes);
    assert_non_null(words);
    memcpy(words, stored->data, stored->bytes);
    const mha_named_tensor tensor = {
        .name = name, .dtype = MHA_F32, .rank = 2, .shape = {stored->shape[0], stored->shape[1]}, .data = words};
    const mha_model_options weights = {.size = sizeof weights, .tensors = &tensor, .tensor_count = 1};
    run *r = measure((stop){0}, &weights, path, BATCH);
    assert_int_equal(r->status, MHA_OK);
    release(r);
    words[stored->elements - 1] += 1;
    refused(path, &weights, BATCH,
            "state must be from a run with the same model and data (got another model (or on another ISA))");
    free(words);
    mha_file_free(file);
    files_remove(folder);
}

static void rejected_arguments(void **state)
{
    (void)state;
    static const char key[] = "\"options\":\"statistics of heads, ", weights[] = MHA_TEST_DATA "/models/bert-tiny";
    const char *folder = files_folder();
    char other[512];
    size_t n;
    snprintf(path, sizeof path, "%s/sta\033te", folder);
    snprintf(other, sizeof other, "%s/model.safetensors", weights);
    release(whole(path));
    refused(path, &(mha_model_options){.size = sizeof(mha_model_options), .dtype = MHA_F16}, BATCH,
            "state must be from a run with the same model and data (got another model (or on another ISA))");
    refused(path, NULL, BATCH + 1, "state must be from a run with the same model and data (got other data)");
    refused(other, NULL, BATCH, "must be a state file of a measurement");
    char *bytes = files_read(path, &n), *at = NULL;
    for (size_t i = 0; i + sizeof key < n && !at; i++)
        if (memcmp(bytes + i, key, sizeof key - 1) == 0) at = bytes + i;
    assert_non_null(at);
    memcpy(at + 11, "Statistics", 10);
    files_write(path, bytes, n);
    refused(path, NULL, BATCH,
            "state must be from a run with the same options (got Statistics of heads, in units of 2^-80, not "
            "\"statistics of "
            "heads, in units of 2^-80\")");
    free(bytes);
    files_remove(folder);
}

static void broken(const char *said)
{
    run *r = measure((stop){0}, NULL, path, BATCH);
    assert_int_equal(r->status, MHA_ERR_FORMAT);
    assert_non_null(strstr(r->err.message, path));
    if (!strstr(r->err.message, said)) fail_msg("%s", r->err.message);
    release(r);
}

/* Truncated state files and files with an invalid number of steps must be rejected. */
static void broken_files(void **state)
{
    (void)state;
    static const char key[] = "\"done\":\"";
    const char *folder = files_folder();
    size_t n;
    snprintf(path, sizeof path, "%s/state", folder);
    release(whole(path));
    char *bytes = files_read(path, &n);
    for (size_t cut = 0; cut < n; cut += 1 + n / 7) {
        files_write(path, bytes, cut);
        broken("");
    }
    for (size_t i = 0; i + sizeof key < n; i++)
        if (memcmp(bytes + i, key, sizeof key - 1) == 0) bytes[i + sizeof key - 1] = '9';
    files_write(path, bytes, n);
    broken("\"done\" in the metadata must be from 0 to ");
    free(bytes);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canceled_runs_resume), cmocka_unit_test(runs_canceled_within_a_batch_resume),
        cmocka_unit_test(killed_runs_resume),   cmocka_unit_test(a_model_with_another_embedding),
        cmocka_unit_test(rejected_arguments),   cmocka_unit_test(broken_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

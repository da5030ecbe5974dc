/* test_train_store.c - tests a training run through the public headers alone. A run that is stopped and resumed must
 * end with the weights and the log of an uninterrupted run. A folder must belong to one run, and older checkpoints must
 * be kept or removed as requested. */
#include "mha/model_create.h"
#include "mha/train_data.h"
#include "mha/train_log.h"
#include "mha/train_store.h"
#include "support/check.h"
#include "support/files.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VOCAB = 32, LENGTH = 8, BATCH = 2, STEPS = 6 };

#define MODEL                                                                                                         \
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":32,\"n_embd\":16,\"n_layer\":1," \
    "\"n_head\":2,\"n_positions\":8,\"bos_token_id\":0,\"eos_token_id\":0}"

static const mha_train_options options = {.size = sizeof options, .rate = 1e-2, .warmup = 2, .steps = STEPS};

#define TRY(expr)                                          \
    do {                                                   \
        mha_error err = {0};                               \
        if ((expr) != MHA_OK) fail_msg("%s", err.message); \
    } while (0)

static mha_train_data *read_data(const char *folder)
{
    uint16_t ids[200];
    const char *path = files_path(folder, "ids.bin");
    const mha_train_data_options o = {.size = sizeof o, .length = LENGTH, .vocab = VOCAB, .causal = 1};
    mha_train_data *data;
    for (int n = 0; n < 200; n++)
        ids[n] = (uint16_t)(n * n % VOCAB);
    files_write(path, ids, sizeof ids);
    TRY(mha_train_data_create(NULL, &o, &data, &err));
    TRY(mha_train_data_add_file(data, path, &err));
    TRY(mha_train_data_finish(data, &err));
    unlink(path);
    return data;
}

static mha_train_store *open_store(const char *folder, int resume, int overwrite)
{
    const mha_train_store_options o = {.size = sizeof o, .resume = resume, .overwrite = overwrite};
    mha_train_store *store;
    TRY(mha_train_store_open(NULL, folder, &o, &store, &err));
    return store;
}

static mha_trainer *open_trainer(mha_train_store *store)
{
    const mha_model_create_options o = {.size = sizeof o, .seed = 3};
    mha_trainer *trainer;
    mha_model *model;
    if (mha_train_store_has_checkpoint(store)) {
        TRY(mha_train_store_resume(store, &options, &trainer, &err));
        return trainer;
    }
    TRY(mha_model_create(NULL, MODEL, &o, &model, &err));
    TRY(mha_trainer_create(model, &options, &trainer, &err));
    mha_model_free(model);
    return trainer;
}

/* Returns the log of the checkpoint in `folder`. The log continues at the step of the checkpoint. Without a checkpoint,
 * returns an empty log. */
static mha_train_log *open_log(const mha_train_store *store, const char *folder)
{
    const char *path = files_path(folder, "training.jsonl");
    mha_train_log *log;
    if (!mha_train_store_has_checkpoint(store)) {
        TRY(mha_train_log_create(NULL, &log, &err));
        return log;
    }
    TRY(mha_train_log_read(NULL, path, mha_train_store_step(store, NULL), &log, &err));
    TRY(mha_train_log_write_to(log, path, 0, &err));
    return log;
}

/* Runs one step. Its data depends only on the number of the step. */
static void take_step(mha_trainer *trainer, mha_train_log *log, const mha_train_data *data)
{
    int32_t ids[BATCH * LENGTH];
    const int64_t count = mha_train_data_describe(data)->sequences, step = mha_trainer_step_count(trainer);
    for (int64_t n = 0; n < BATCH; n++) {
        const int64_t index = step * BATCH + n;
        const int64_t sequence = mha_train_sequence_order(7, index / count, index % count, count);
        assert_int_equal(mha_train_data_sequence(data, sequence, ids + n * LENGTH), LENGTH);
    }
    const mha_model_input input = {.size = sizeof input, .batch = BATCH, .length = LENGTH, .ids = ids};
    const mha_train_batch batch = {.input = &input};
    mha_train_report report;
    TRY(mha_trainer_step(trainer, &batch, 1, &report, &err));
    const mha_train_record record = {.size = sizeof record,
                                     .step = report.step,
                                     .tokens = report.step * BATCH * LENGTH,
                                     .loss = report.loss,
                                     .rate = report.rate,
                                     .norm = report.norm,
                                     .eval_loss = NAN,
                                     .open_heads = NAN};
    TRY(mha_train_log_add(log, &record, &err));
}

/* Saves a checkpoint with the log in it, and opens the log in the new folder. */
static void save(mha_train_store *store, const mha_trainer *trainer, mha_train_log *log, const char *folder)
{
    size_t bytes;
    const char *lines = mha_train_log_lines(log, &bytes);
    const mha_train_file file = {"training.jsonl", lines, bytes};
    TRY(mha_train_store_save(store, trainer, &file, 1, &err));
    TRY(mha_train_log_write_to(log, files_path(folder, "training.jsonl"), 0, &err));
}

/* Runs the training up to step `last` with a checkpoint after each step, and then one more step without a
 * checkpoint. */
static void run_to(const char *folder, const mha_train_data *data, int64_t last, int64_t keep)
{
    mha_train_store *store = open_store(folder, 1, 0);
    mha_train_log *log = open_log(store, folder);
    mha_trainer *trainer = open_trainer(store);
    TRY(mha_train_store_keep(store, keep, &err));
    while (mha_trainer_step_count(trainer) < last) {
        take_step(trainer, log, data);
        save(store, trainer, log, folder);
    }
    take_step(trainer, log, data); /* in the log, but not in a checkpoint */
    mha_train_log_free(log);
    mha_trainer_free(trainer);
    TRY(mha_train_store_close(store, &err));
}

static bool exists(const char *folder, const char *name)
{
    struct stat st;
    return lstat(files_path(folder, name), &st) == 0;
}

static void expect_same_file(const char *a, const char *b, const char *name)
{
    size_t bytes[2];
    char *content[2] = {files_read(files_path(a, name), &bytes[0]), files_read(files_path(b, name), &bytes[1])};
    assert_non_null(content[0]);
    assert_non_null(content[1]);
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(content[0], content[1], bytes[0]);
    free(content[0]);
    free(content[1]);
}

static void remove_runs(const char *folder, const char *const *names)
{
    for (; *names; names++)
        if (exists(folder, *names)) files_remove(files_path(folder, *names));
}

static void test_resumed_run(void **state)
{
    (void)state;
    const char *folder = files_folder();
    char *whole = strdup(files_path(folder, "whole")), *stopped = strdup(files_path(folder, "stopped"));
    mha_train_data *data = read_data(folder);
    run_to(whole, data, STEPS, 0);
    run_to(stopped, data, 2, 0);
    run_to(stopped, data, STEPS, 0);
    expect_same_file(whole, stopped, "model.safetensors");
    expect_same_file(whole, stopped, "training.safetensors");
    expect_same_file(whole, stopped, "training.jsonl");
    assert_false(exists(folder, ".stopped.lock"));
    remove_runs(folder, (const char *[]){"whole", "stopped", NULL});
    assert_int_equal(files_count(folder), 0);
    mha_train_data_free(data);
    free(whole);
    free(stopped);
    files_remove(folder);
}

static void test_older_checkpoints(void **state)
{
    (void)state;
    const char *folder = files_folder();
    char *run = strdup(files_path(folder, "run"));
    mha_train_data *data = read_data(folder);
    mha_error err = {0};
    run_to(run, data, 4, 2);
    assert_true(exists(folder, "run.step-2") && exists(folder, "run.step-3"));
    assert_int_equal(files_count(folder), 3);
    /* a new run without overwrite must not replace the checkpoints of another run */
    mha_train_store *store = open_store(files_path(folder, "run//"), 0, 0);
    assert_false(mha_train_store_has_checkpoint(store));
    assert_int_equal(mha_train_store_step(store, &err), 4);
    assert_int_equal(mha_train_store_keep(store, 2, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "run.step-2 exists; set overwrite to 1 to replace it");
    TRY(mha_train_store_close(store, &err));
    store = open_store(run, 0, 1);
    TRY(mha_train_store_keep(store, 2, &err));
    mha_trainer *trainer = open_trainer(store);
    mha_train_log *log = open_log(store, run);
    take_step(trainer, log, data);
    save(store, trainer, log, run); /* must remove all checkpoints of the other run */
    assert_int_equal(files_count(folder), 2);
    mha_train_log_free(log);
    mha_trainer_free(trainer);
    TRY(mha_train_store_close(store, &err));
    remove_runs(folder, (const char *[]){"run", NULL});
    mha_train_data_free(data);
    free(run);
    files_remove(folder);
}

static void expect_refused(const char *folder, mha_status status, const char *why)
{
    mha_error err = {0};
    mha_train_store *store = (mha_train_store *)&err;
    assert_int_equal(mha_train_store_open(NULL, folder, NULL, &store, &err), status);
    assert_null(store);
    if (!strstr(err.message, why)) fail_msg("%s", err.message);
}

static void test_one_run_at_a_time(void **state)
{
    (void)state;
    const char *folder = files_folder();
    char *run = strdup(files_path(folder, "run")), long_name[300];
    mha_train_store *store = open_store(run, 0, 0);
    expect_refused(run, MHA_ERR_IO, "run: another training run is writing to it");
    TRY(mha_train_store_close(store, &err));
    TRY(mha_train_store_close(NULL, &err));
    expect_refused(files_path(folder, "absent/run"), MHA_ERR_IO, "absent/run: cannot write");
    memset(long_name, 'a', sizeof long_name);
    long_name[224] = '\0';
    expect_refused(long_name, MHA_ERR_ARG, "the last component of folder must have 1 to 223 bytes");
    expect_refused("/", MHA_ERR_ARG, "the last component of folder must have 1 to 223 bytes");
    free(run);
    files_remove(folder);
}

/* If a process is killed between two renames, its checkpoint remains under a temporary name. A new run must then be
 * rejected, and a resumed run must continue from that checkpoint. */
static void test_renamed_checkpoint(void **state)
{
    (void)state;
    const char *folder = files_folder();
    char *run = strdup(files_path(folder, "run")), *old = strdup(files_path(folder, ".run.old.77"));
    mha_train_data *data = read_data(folder);
    run_to(run, data, 2, 0);
    assert_int_equal(rename(run, old), 0);
    expect_refused(run, MHA_ERR_ARG, ".run.old.77 was left behind by a training run that was killed while writing run");
    mha_train_store *store = open_store(run, 1, 0);
    assert_int_equal(mha_train_store_step(store, NULL), 2);
    TRY(mha_train_store_close(store, &err));
    remove_runs(folder, (const char *[]){"run", NULL});
    mha_train_data_free(data);
    free(run);
    free(old);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resumed_run),
        cmocka_unit_test(test_older_checkpoints),
        cmocka_unit_test(test_one_run_at_a_time),
        cmocka_unit_test(test_renamed_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

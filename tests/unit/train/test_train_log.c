/* test_train_log.c - tests the log of a training run through its public header: appended records must be read back, a
 * resumed log must end at its checkpoint, and damaged logs and other files must be rejected. */
#include "mha/train_log.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRY(expr)                                          \
    do {                                                   \
        mha_error err = {0};                               \
        if ((expr) != MHA_OK) fail_msg("%s", err.message); \
    } while (0)

#define FIRST "{\"step\":0,\"tokens\":0,\"seconds\":0.5,\"eval_loss\":5.5}\n"
#define SECOND                                                                                                       \
    "{\"step\":1,\"loss\":0.333333333,\"rate\":1e-5,\"norm\":2.0,\"tokens\":64,\"seconds\":1.25,\"open_heads\":7.5," \
    "\"samples\":[{\"prompt\":\"Once\",\"text\":\" \\\"upon\\\"\\n\"},{\"prompt\":\"\",\"text\":\"a\\u0000b\"}]}\n"
#define CSV                                                     \
    "step,loss,rate,norm,tokens,seconds,eval_loss,open_heads\n" \
    "0,,,,0,0.5,5.5,\n"                                         \
    "1,0.333333333,1e-5,2.0,64,1.25,,7.5\n"

static const mha_train_sample samples[] = {{.prompt = "Once", .text = " \"upon\"\n"},
                                           {.prompt = "", .text = "a\0b", .text_bytes = 3}};

static mha_train_record blank(int64_t step)
{
    return (mha_train_record){.size = sizeof(mha_train_record),
                              .step = step,
                              .loss = NAN,
                              .rate = NAN,
                              .norm = NAN,
                              .eval_loss = NAN,
                              .open_heads = NAN};
}

static mha_status add_two(mha_train_log *log, mha_error *err)
{
    mha_train_record first = blank(0), second = blank(1);
    first.seconds = 0.5, first.eval_loss = 5.5;
    second.tokens = 64, second.seconds = 1.25;
    second.loss = 1.0 / 3, second.rate = 1e-5, second.norm = 2, second.open_heads = 7.5;
    second.samples = samples, second.sample_count = 2;
    const mha_status status = mha_train_log_add(log, &first, err);
    return status == MHA_OK ? mha_train_log_add(log, &second, err) : status;
}

static mha_train_log *two_records(void)
{
    mha_train_log *log;
    TRY(mha_train_log_create(NULL, &log, &err));
    TRY(add_two(log, &err));
    return log;
}

static void expect_lines(const mha_train_log *log, const char *lines)
{
    size_t bytes;
    const char *text = mha_train_log_lines(log, &bytes);
    assert_int_equal(bytes, strlen(lines));
    assert_memory_equal(text, lines, bytes);
}

static void expect_file(const char *path, const char *content)
{
    size_t bytes;
    char *text = files_read(path, &bytes);
    assert_non_null(text);
    assert_string_equal(text, content);
    free(text);
}

/* ---- records of the log ---- */

static void test_lines(void **state)
{
    (void)state;
    mha_train_log *log = two_records();
    expect_lines(log, FIRST SECOND);
    assert_int_equal(mha_train_log_count(log), 2);
    assert_null(mha_train_log_record(log, 2));
    assert_null(mha_train_log_record(log, -1));
    const mha_train_record *r = mha_train_log_record(log, 1);
    assert_true(r->loss == 1.0 / 3); /* the value that was appended, not the value rounded for the file */
    assert_true(isnan(r->eval_loss));
    assert_true(r->samples != samples && r->samples[1].text_bytes == 3);
    assert_string_equal(r->samples[0].prompt, "Once");
    mha_train_log_free(log);
    mha_train_log_free(NULL);
    assert_int_equal(mha_train_log_count(NULL), 0);
    assert_string_equal(mha_train_log_lines(NULL, NULL), "");
}

static void test_read_back(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "training.jsonl");
    mha_train_log *log;
    files_write(path, FIRST SECOND, strlen(FIRST SECOND) - 1); /* without the last newline */
    TRY(mha_train_log_read(NULL, path, -1, &log, &err));
    expect_lines(log, FIRST SECOND);
    const mha_train_record *first = mha_train_log_record(log, 0), *r = mha_train_log_record(log, 1);
    assert_int_equal(first->sample_count, 0);
    assert_true(isnan(first->loss) && first->eval_loss == 5.5);
    assert_true(r->step == 1 && r->tokens == 64 && r->loss == 0.333333333 && r->open_heads == 7.5);
    assert_int_equal(r->sample_count, 2);
    assert_string_equal(r->samples[0].text, " \"upon\"\n");
    assert_memory_equal(r->samples[1].text, "a\0b", 4);
    mha_train_log_free(log);
    files_write(path, "", 0);
    TRY(mha_train_log_read(NULL, path, -1, &log, &err));
    assert_int_equal(mha_train_log_count(log), 0);
    expect_lines(log, "");
    mha_train_log_free(log);
    files_remove(folder);
}

/* Tests lines that are longer than the read buffer, and more lines than the log keeps in memory. */
static void test_long_file(void **state)
{
    (void)state;
    enum { STEPS = 400, TEXT = 5000 };
    const char *folder = files_folder(), *path = files_path(folder, "training.jsonl");
    char *text = malloc(TEXT + 1);
    memset(text, 'x', TEXT);
    text[TEXT] = '\0';
    const mha_train_sample sample = {.prompt = "", .text = text};
    mha_train_log *log, *again;
    TRY(mha_train_log_create(NULL, &log, &err));
    TRY(mha_train_log_write_to(log, path, 0, &err));
    for (int64_t step = 0; step < STEPS; step++) {
        mha_train_record r = blank(step);
        r.samples = &sample, r.sample_count = 1;
        text[step] = '\n';
        TRY(mha_train_log_add(log, &r, &err));
    }
    TRY(mha_train_log_read(NULL, path, STEPS - 1, &again, &err));
    assert_int_equal(mha_train_log_count(again), STEPS);
    for (int64_t n = 0; n < STEPS; n++)
        assert_string_equal(mha_train_log_record(again, n)->samples[0].text,
                            mha_train_log_record(log, n)->samples[0].text);
    mha_train_log_free(again);
    mha_train_log_free(log);
    free(text);
    files_remove(folder);
}

/* Writes records to both files until the disk is full: a limit on the file size, which cannot be raised again, so this
 * runs in a child process. Returns 0 if the record that does not fit is the first failure. */
static int fill_disk(const char *path, const char *csv, int64_t fitting, rlim_t bytes)
{
    mha_train_log *log;
    mha_error err = {0};
    const struct rlimit limit = {bytes, bytes};
    signal(SIGXFSZ, SIG_IGN);
    bool good = setrlimit(RLIMIT_FSIZE, &limit) == 0 && mha_train_log_create(NULL, &log, &err) == MHA_OK &&
                mha_train_log_write_to(log, path, 0, &err) == MHA_OK &&
                mha_train_log_write_to(log, csv, 0, &err) == MHA_OK;
    char text[300] = "";
    memset(text, 'x', sizeof text - 1);
    const mha_train_sample sample = {.prompt = "", .text = text};
    for (int64_t step = 0; good && step <= fitting; step++) {
        mha_train_record r = blank(step);
        if (step == fitting) r.samples = &sample, r.sample_count = 1;
        good = (mha_train_log_add(log, &r, &err) == MHA_OK) == (step < fitting);
    }
    good = good && strstr(err.message, "cannot write the log");
    mha_train_log_free(log);
    return good ? 0 : 1;
}

/* On a full disk, a file must keep its complete records, and a file without a record must not remain. The header of the
 * CSV file has 56 bytes. */
static void test_full_disk(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "training.jsonl"),
               *csv = files_path(folder, "a.csv");
    for (int64_t fitting = 0; fitting < 2; fitting++) {
        int status;
        const pid_t child = fork();
        if (child == 0) _exit(fill_disk(path, csv, fitting, fitting ? 200 : 60));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_int_equal(files_count(folder), fitting ? 2 : 0);
    }
    expect_file(path, "{\"step\":0,\"tokens\":0,\"seconds\":0.0}\n");
    files_remove(folder);
}

/* ---- resumed logs ---- */

static void test_resumed_log(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "training.jsonl");
    mha_train_log *log;
    mha_train_record next = blank(2);
    next.tokens = 128, next.seconds = 2;
    files_write(path, FIRST SECOND "{\"step\":2,\"lo", strlen(FIRST SECOND) + 13);
    TRY(mha_train_log_read(NULL, path, 1, &log, &err));
    TRY(mha_train_log_write_to(log, path, 0, &err));
    expect_file(path, FIRST SECOND);
    TRY(mha_train_log_add(log, &next, &err));
    expect_file(path, FIRST SECOND "{\"step\":2,\"tokens\":128,\"seconds\":2.0}\n");
    mha_train_log_free(log);
    files_remove(folder);
}

/* If another file is renamed to the path of the log, as when a checkpoint is replaced, mha_train_log_write_to must open
 * the new file. */
static void test_replaced_file(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "training.jsonl"),
               *csv = files_path(folder, "a.csv"), *fresh = files_path(folder, "fresh");
    mha_train_log *log;
    TRY(mha_train_log_create(NULL, &log, &err));
    TRY(mha_train_log_write_to(log, csv, 0, &err));
    TRY(mha_train_log_write_to(log, path, 0, &err));
    files_write(fresh, "", 0);
    assert_int_equal(rename(fresh, path), 0);
    TRY(mha_train_log_write_to(log, path, 0, &err));
    TRY(add_two(log, &err));
    expect_file(path, FIRST SECOND);
    expect_file(csv, CSV);
    mha_error err = {0};
    assert_int_equal(mha_train_log_write_to(log, fresh, 0, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_train_log_write_to: log must have at most 2 files");
    mha_train_log_free(log);
    files_remove(folder);
}

/* ---- error messages ---- */

static void expect_file_refused(const char *path, int overwrite, mha_status status, const char *why)
{
    mha_train_log *log = two_records();
    mha_error err = {0};
    assert_int_equal(mha_train_log_write_to(log, path, overwrite, &err), status);
    if (!strstr(err.message, why)) fail_msg("%s", err.message);
    mha_train_log_free(log);
}

static void test_files_of_others(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "a.csv"), *link = files_path(folder, "link.csv"),
               *fifo = files_path(folder, "fifo");
    mha_train_log *log;
    files_write(path, "step,loss\n0,1\n", 14);
    expect_file_refused(path, 0, MHA_ERR_ARG, "a.csv is not a log of this run; set overwrite to 1 to replace it");
    assert_int_equal(symlink(path, link), 0);
    expect_file_refused(link, 1, MHA_ERR_IO, "link.csv: cannot open the log");
    expect_file(path, "step,loss\n0,1\n");
    TRY(mha_train_log_create(NULL, &log, &err));
    /* the call must fail for an empty log, too */
    assert_int_equal(mha_train_log_write_to(log, path, 0, NULL), MHA_ERR_ARG);
    mha_train_log_free(log);
    expect_file_refused(path, 1, MHA_OK, "");
    expect_file(path, CSV);
    files_write(path, CSV "2,1", strlen(CSV) + 3); /* the last line is incomplete, as after a killed run */
    expect_file_refused(path, 0, MHA_OK, "");
    expect_file(path, CSV);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    expect_file_refused(fifo, 1, MHA_ERR_IO, "fifo: the log must be a regular file (got a fifo)");
    expect_file_refused(folder, 1, MHA_ERR_IO, "cannot open the log: Is a directory");
    files_remove(folder);
}

static void test_an_empty_log_replaces_nothing(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "notes");
    mha_train_log *log;
    mha_error err = {0};
    files_write(path, "notes\n", 6);
    TRY(mha_train_log_create(NULL, &log, &err));
    assert_int_equal(mha_train_log_write_to(log, path, 0, &err), MHA_ERR_ARG);
    expect_file(path, "notes\n");
    mha_train_log_free(log);
    files_remove(folder);
}

static void test_damaged_logs(void **state)
{
    (void)state;
#define START "{\"step\":0,\"tokens\":0,\"seconds\":0"
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "must contain the records up to step 1 (the log ends earlier)"},
        {FIRST, "must contain the records up to step 1 (the log ends earlier)"},
        {"\n", "line 1 must be the record of a step"},
        {"[]\n", "line 1 must be the record of a step"},
        {FIRST "{\"step\":1,\"lo\n", "line 2 must be the record of a step"},
        {START ",\"step\":1}\n", "line 1 must be the record of a step"},
        {FIRST "{\"step\":0,\"tokens\":0,\"seconds\":0}\n", "line 2: step must be an integer from 1 to 1 (got 0)"},
        {FIRST "{\"step\":2,\"tokens\":0,\"seconds\":0}\n", "line 2: step must be an integer from 1 to 1 (got 2)"},
        {"{\"tokens\":0,\"seconds\":0}\n", "line 1: step must be an integer from 0 to 1 (got nothing)"},
        {"{\"step\":0,\"tokens\":4611686018427387905,\"seconds\":0}\n",
         "line 1: tokens must be an integer from 0 to 4611686018427387904 (got 4611686018427387905)"},
        {"{\"step\":0,\"tokens\":0,\"seconds\":-1}\n", "line 1: seconds must be a number from 0 to"},
        {START ",\"loss\":\"low\"}\n", "line 1: loss must be a number from"},
        {START ",\"samples\":{}}\n", "line 1: samples must be an array (got an object)"},
        {START ",\"samples\":[{\"prompt\":\"a\"}]}\n",
         "line 1: samples[0] must be {\"prompt\": string, \"text\": string} (got an object)"},
    };
    const char *folder = files_folder(), *path = files_path(folder, "training.jsonl");
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_train_log *log = (mha_train_log *)folder;
        mha_error err = {0};
        files_write(path, cases[n].text, strlen(cases[n].text));
        assert_int_equal(mha_train_log_read(NULL, path, 1, &log, &err), MHA_ERR_FORMAT);
        assert_null(log);
        if (!strstr(err.message, cases[n].why) || !strstr(err.message, path)) fail_msg("%s", err.message);
    }
    mha_train_log *log;
    mha_error err = {0};
    unlink(path);
    assert_int_equal(mha_train_log_read(NULL, path, 1, &log, &err), MHA_ERR_IO);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(mha_train_log_read(NULL, path, 1, &log, &err), MHA_ERR_IO);
    files_remove(folder);
}

static void expect_record_refused(mha_train_log *log, const mha_train_record *r, const char *why)
{
    mha_error err = {0};
    assert_int_equal(mha_train_log_add(log, r, &err), MHA_ERR_ARG);
    if (!strstr(err.message, why)) fail_msg("%s", err.message);
    assert_int_equal(mha_train_log_count(log), 2);
    expect_lines(log, FIRST SECOND);
}

static void test_bad_records(void **state)
{
    (void)state;
    mha_train_log *log = two_records();
    char *text = malloc(9 << 20);
    memset(text, 'x', 9 << 20);
    const mha_train_sample none = {.prompt = "a"}, huge = {.prompt = "a", .text = text, .text_bytes = 9 << 20};
    mha_train_record r = blank(1);
    expect_record_refused(log, &r, "step must be an integer from 2 to 4611686018427387904 (got 1)");
    r = blank(2), r.tokens = -1;
    expect_record_refused(log, &r, "tokens must be an integer from 0 to 4611686018427387904 (got -1)");
    r = blank(2), r.seconds = NAN;
    expect_record_refused(log, &r, "seconds must be a finite number of at least 0 (got nan)");
    r = blank(2), r.loss = INFINITY;
    expect_record_refused(log, &r, "loss must be finite or NaN (got inf)");
    r = blank(2), r.sample_count = 1;
    expect_record_refused(log, &r, "samples must be an array of sample_count elements (got NULL, 1)");
    r.samples = &none;
    expect_record_refused(log, &r, "samples[0].text must not be NULL");
    r.samples = &huge;
    expect_record_refused(log, &r, "the line of a record must have at most 8388608 bytes (got 9437");
    expect_record_refused(log, NULL, "mha_train_record");
    free(text);
    mha_train_log_free(log);
}

/* ---- failed allocations ---- */

static mha_status write_and_read(mha_ctx *ctx, const char *folder, mha_error *err)
{
    const char *path = files_path(folder, "training.jsonl"), *csv = files_path(folder, "a.csv");
    mha_train_log *log = NULL, *again = NULL;
    mha_status status = mha_train_log_create(ctx, &log, err);
    if (status == MHA_OK) status = mha_train_log_write_to(log, path, 1, err);
    if (status == MHA_OK) status = mha_train_log_write_to(log, csv, 1, err);
    if (status == MHA_OK) status = add_two(log, err);
    if (status == MHA_OK) status = mha_train_log_read(ctx, path, 1, &again, err);
    mha_train_log_free(again);
    mha_train_log_free(log);
    return status;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    counting c = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&c)};
    const char *folder = files_folder();
    mha_ctx *ctx;
    TRY(mha_ctx_create(&o, &ctx, &err));
    const long before = atomic_load(&c.live);
    long budget = 0;
    for (mha_status status = MHA_ERR_MEMORY; status != MHA_OK; budget++) {
        mha_error err = {0};
        atomic_store(&c.calls, 0);
        atomic_store(&c.budget, budget);
        status = write_and_read(ctx, folder, &err);
        atomic_store(&c.budget, -1);
        if (status != MHA_OK) assert_int_equal(status, MHA_ERR_MEMORY);
        if (status != MHA_OK) assert_non_null(strstr(err.message, "out of memory"));
        assert_int_equal(atomic_load(&c.live), before);
    }
    printf("%ld failed allocations tested\n", budget - 1);
    assert_true(budget > 10);
    mha_ctx_free(ctx);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_read_back),
        cmocka_unit_test(test_long_file),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_resumed_log),
        cmocka_unit_test(test_replaced_file),
        cmocka_unit_test(test_files_of_others),
        cmocka_unit_test(test_an_empty_log_replaces_nothing),
        cmocka_unit_test(test_damaged_logs),
        cmocka_unit_test(test_bad_records),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

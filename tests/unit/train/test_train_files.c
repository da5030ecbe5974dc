/* test_train_files.c - tests checkpoint folders: additional files, and temporary folders of killed processes. */
#include "support/check.h"
#include "support/files.h"
#include "support/model/train_case.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPT2 "models/gpt2-tiny"

static const mha_train_options usual = {.size = sizeof usual};

static void test_additional_files(void **state)
{
    (void)state;
    const char *folder = files_folder();
    mha_error err = {0};
    size_t n = 0;
    mha_trainer *t = train_case(NULL, GPT2, &usual);
    mha_train_file files[] = {{"training.log", "one", 3}, {"training.page", "", 0}};
    const mha_trainer_save_options o = {.size = sizeof o, .overwrite = 1, .files = files, .file_count = 2};
    for (int round = 0; round < 2; round++) {
        if (mha_trainer_save(t, folder, &o, &err) != MHA_OK) fail_msg("%s", err.message);
        char *log = files_read(files_path(folder, "training.log"), &n);
        assert_string_equal(log, round ? "two" : "one");
        assert_int_equal(n, 3);
        free(log);
        files[0].data = "two";
    }
    static const char *const wrong[] = {NULL,
                                        "",
                                        "training.",
                                        "training.safetensors",
                                        "log",
                                        "training.a/../../b",
                                        "training.a\nb",
                                        "training.\x01",
                                        "training.\x7f",
                                        "training.log"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        files[1].name = wrong[i];
        assert_int_equal(mha_trainer_save(t, folder, &o, &err), MHA_ERR_ARG);
        assert_non_null(strstr(err.message, "files[1]"));
    }
    files[1] = (mha_train_file){"training.page", NULL, 3};
    assert_int_equal(mha_trainer_save(t, folder, &o, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "files[1]: data must not be NULL with bytes = 3"));
    files[1].bytes = 0;
    assert_int_equal(mha_trainer_save(t, folder, &o, &err), MHA_OK);
    mha_trainer_free(t);
    files_remove(folder);
}

/* Saving must remove the incomplete checkpoint of a process that has ended. It must keep the locked checkpoint of a
 * running process. */
static void test_incomplete_checkpoints(void **state)
{
    (void)state;
    const char *folder = files_folder();
    char left[4096], held[4096];
    mha_error err = {0};
    mha_trainer *t = train_case(NULL, GPT2, &usual);
    const char *base = strrchr(folder, '/') + 1;
    snprintf(left, sizeof left, "%.*s.%s.tmp.999999999", (int)(base - folder), folder, base);
    snprintf(held, sizeof held, "%.*s.%s.tmp.999999998", (int)(base - folder), folder, base);
    assert_int_equal(mkdir(left, 0700), 0);
    assert_int_equal(mkdir(held, 0700), 0);
    files_write(files_path(left, "model.safetensors"), "half", 4);
    const int fd = open(held, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(mha_trainer_save(t, folder, NULL, &err), MHA_OK);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(access(held, F_OK), 0);
    close(fd);
    assert_int_equal(rmdir(held), 0);
    mha_trainer_free(t);
    files_remove(folder);
}

/* With `aside`, the replaced checkpoint must be kept under that name and replace an older checkpoint of the same name.
 * A folder of that name with a file of another program must be kept, and saving must fail. */
static void test_replaced_checkpoint_is_kept(void **state)
{
    (void)state;
    const char *folder = files_folder(), *base = strrchr(folder, '/') + 1;
    char aside[4096], path[4096];
    mha_error err = {0};
    size_t n = 0;
    mha_trainer *t = train_case(NULL, GPT2, &usual);
    snprintf(aside, sizeof aside, "%s.old", base);
    snprintf(path, sizeof path, "%s.old", folder);
    for (int round = 0; round < 3; round++) {
        const char digit = (char)('0' + round);
        const mha_train_file file = {"training.log", &digit, 1};
        const mha_trainer_save_options o = {
            .size = sizeof o, .overwrite = 1, .files = &file, .file_count = 1, .aside = aside};
        if (mha_trainer_save(t, folder, &o, &err) != MHA_OK) fail_msg("%s", err.message);
        char *now = files_read(files_path(folder, "training.log"), &n);
        char *before = round ? files_read(files_path(path, "training.log"), &n) : NULL;
        assert_int_equal(now[0], digit);
        if (round) assert_int_equal(before[0], digit - 1);
        free(now);
        free(before);
    }
    files_write(files_path(path, "letter"), "mine", 4);
    const char *const wrong[] = {aside, base, "a/b", "..", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const mha_trainer_save_options o = {.size = sizeof o, .overwrite = 1, .aside = wrong[i]};
        assert_int_equal(mha_trainer_save(t, folder, &o, &err), MHA_ERR_IO);
        assert_int_equal(access(files_path(path, "letter"), F_OK), 0);
        assert_int_equal(access(files_path(folder, "training.log"), F_OK), 0);
    }
    mha_trainer_free(t);
    files_remove(folder);
    files_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_additional_files),
        cmocka_unit_test(test_incomplete_checkpoints),
        cmocka_unit_test(test_replaced_checkpoint_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

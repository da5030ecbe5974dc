/* test_io_write.c - tests mha_file_write. At any time, a file must have its complete old or its complete new content.
 * Links must not be followed, and no temporary file may remain. */
#include "mha/io.h"
#include "support/files.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void expect_content(const char *path, const char *want)
{
    size_t n;
    char *bytes = files_read(path, &n);
    if (!bytes) fail_msg("%s must exist", path);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(bytes, want, n);
    free(bytes);
}

static void expect_failure(const char *path, int overwrite, mha_status status, const char *says)
{
    mha_error err = {0};
    assert_int_equal(mha_file_write(path, "new", 3, overwrite, &err), status);
    assert_int_equal(err.status, status);
    if (!strstr(err.message, path) || !strstr(err.message, says)) fail_msg("%s", err.message);
}

static void existing_files_and_overwrite(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "out.svg");
    assert_int_equal(mha_file_write(path, "one", 3, 0, NULL), MHA_OK);
    expect_content(path, "one");
    expect_failure(path, 0, MHA_ERR_IO, "it already exists");
    expect_content(path, "one");
    assert_int_equal(mha_file_write(path, "twofold", 7, 1, NULL), MHA_OK);
    expect_content(path, "twofold");
    assert_int_equal(mha_file_write(path, NULL, 0, 1, NULL), MHA_OK);
    expect_content(path, "");
    assert_int_equal(files_count(folder), 1);
    files_remove(folder);
}

static void permissions(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x");
    struct stat st;
    mode_t old = umask(027);
    assert_int_equal(mha_file_write(path, "1", 1, 0, NULL), MHA_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(chmod(path, 0604), 0); /* a file that is overwritten must keep its mode */
    assert_int_equal(mha_file_write(path, "2", 1, 1, NULL), MHA_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0604);
    umask(old);
    files_remove(folder);
}

static void relative_names(void **state)
{
    (void)state;
    const char *folder = files_folder();
    char here[4096];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    mha_status status = mha_file_write("plain", "1", 1, 0, NULL);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(status, MHA_OK);
    expect_content(files_path(folder, "plain"), "1");
    files_remove(folder);
}

static void irregular_files(void **state)
{
    (void)state;
    const char *folder = files_folder(), *link = files_path(folder, "link"), *victim = files_path(folder, "victim");
    files_write(victim, "old", 3);
    assert_int_equal(symlink("victim", link), 0);
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        expect_failure(link, overwrite, MHA_ERR_IO, "it is a symbolic link");
        expect_failure(folder, overwrite, MHA_ERR_IO, "it is a directory");
        expect_failure("/dev/full", overwrite, MHA_ERR_IO, "it is a character device");
    }
    expect_content(victim, "old");
    unlink(victim); /* without a target, a link must not be followed to create it */
    expect_failure(link, 1, MHA_ERR_IO, "it is a symbolic link");
    assert_int_equal(files_count(folder), 1);
    files_remove(folder);
}

static void invalid_names(void **state)
{
    (void)state;
    const char *folder = files_folder();
    char longest[300];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    expect_failure("", 0, MHA_ERR_IO, "No such file");
    expect_failure(files_path(folder, ""), 0, MHA_ERR_IO, "Is a directory");
    expect_failure(files_path(folder, "."), 0, MHA_ERR_IO, "Is a directory");
    expect_failure(files_path(folder, ".."), 0, MHA_ERR_IO, "Is a directory");
    expect_failure(files_path(folder, "none/x"), 0, MHA_ERR_IO, "No such file");
    mha_error err = {0};
    assert_int_equal(mha_file_write(files_path(folder, longest), "1", 1, 0, &err), MHA_ERR_IO);
    assert_non_null(strstr(err.message, "name too long"));
    assert_int_equal(mha_file_write(NULL, "1", 1, 0, &err), MHA_ERR_ARG);
    assert_int_equal(mha_file_write(files_path(folder, "x"), NULL, 1, 0, &err), MHA_ERR_ARG);
    assert_int_equal(files_count(folder), 0);
    files_remove(folder);
}

/* mha_file_write_check must return the same errors as mha_file_write and must not change any file. */
static void expect_same(const char *path, int overwrite, mha_status status)
{
    mha_error err = {0}, want = {0};
    assert_int_equal(mha_file_write_check(path, overwrite, &err), status);
    if (status == MHA_OK) return;
    assert_int_equal(mha_file_write(path, "new", 3, overwrite, &want), status);
    assert_string_equal(err.message, want.message);
}

static void check_without_writing(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x");
    expect_same(path, 0, MHA_OK);
    assert_int_equal(files_count(folder), 0);
    assert_int_equal(mha_file_write(path, "one", 3, 0, NULL), MHA_OK);
    expect_same(path, 0, MHA_ERR_IO);
    expect_same(path, 1, MHA_OK);
    expect_content(path, "one");
    const char *link = files_path(folder, "link");
    assert_int_equal(symlink("x", link), 0);
    expect_same(link, 1, MHA_ERR_IO);
    expect_same(folder, 1, MHA_ERR_IO);
    expect_same(files_path(folder, "none/x"), 0, MHA_ERR_IO);
    expect_same(files_path(folder, "x/x"), 0, MHA_ERR_IO);
    expect_same(files_path(folder, ""), 0, MHA_ERR_IO);
    expect_same("/dev/null", 1, MHA_ERR_IO);
    mha_error err = {0};
    assert_int_equal(mha_file_write_check(NULL, 0, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_file_write_check: path must not be NULL");
    if (geteuid() != 0) { /* root may write to every folder */
        assert_int_equal(chmod(folder, 0555), 0);
        expect_same(files_path(folder, "y"), 0, MHA_ERR_IO);
        assert_int_equal(chmod(folder, 0755), 0);
    }
    files_remove(folder);
}

/* Temporary files of killed processes with any id must be removed, but not files that a process has locked or files
 * with other names. */
static void leftover_files(void **state)
{
    (void)state;
    const char *folder = files_folder(), *readable = files_path(folder, ".x.tmp.999999997");
    files_write(readable, "half", 4);
    assert_int_equal(chmod(readable, 0444), 0);
    const char *path = files_path(folder, "x"), *used = files_path(folder, ".x.tmp.999999998");
    char own[64];
    snprintf(own, sizeof own, ".x.tmp.%ld", (long)getpid());
    files_write(files_path(folder, own), "half", 4);
    files_write(files_path(folder, ".x.tmp.999999999"), "half", 4);
    files_write(files_path(folder, ".x.tmp.1x"), "kept", 4);
    files_write(files_path(folder, "x.tmp.1"), "kept", 4);
    files_write(files_path(folder, ".xy.tmp.1"), "kept", 4);
    files_write(used, "used", 4);
    const int fd = open(used, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(mha_file_write(path, "new", 3, 0, NULL), MHA_OK);
    expect_content(path, "new");
    expect_content(used, "used");
    assert_int_equal(files_count(folder), 5);
    close(fd);
    assert_int_equal(mha_file_write(path, "new", 3, 1, NULL), MHA_OK);
    assert_int_equal(files_count(folder), 4);
    files_remove(folder);
}

/* If the name of the temporary file is a file in use or a link, the call must fail without following or removing it. */
static void existing_temporary_file(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x"), *victim = files_path(folder, "victim");
    char name[64];
    snprintf(name, sizeof name, ".x.tmp.%ld", (long)getpid());
    const char *temporary = files_path(folder, name);
    files_write(victim, "old", 3);
    files_write(temporary, "half", 4);
    const int fd = open(temporary, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    expect_failure(path, 1, MHA_ERR_IO, name);
    expect_content(temporary, "half");
    close(fd);
    unlink(temporary);
    assert_int_equal(symlink("victim", temporary), 0);
    expect_failure(path, 1, MHA_ERR_IO, name);
    expect_content(victim, "old");
    assert_int_equal(files_count(folder), 2);
    files_remove(folder);
}

/* If the disk is full, writing must fail and leave the old file. A limit on the file size simulates a full disk: one
 * write is incomplete, and the next one fails. It is set in a child process, because it cannot be raised again. */
static void full_disk(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "x");
    files_write(path, "old", 3);
    pid_t child = fork();
    if (child == 0) {
        static char data[100000];
        const struct rlimit limit = {5000, 5000};
        mha_error err = {0};
        signal(SIGXFSZ, SIG_IGN);
        int bad = setrlimit(RLIMIT_FSIZE, &limit) != 0;
        bad |= mha_file_write(path, data, sizeof data, 1, &err) != MHA_ERR_IO;
        bad |= strstr(err.message, "File too large") == NULL;
        /* three bytes are below the limit, so writing must succeed */
        bad |= mha_file_write(path, "new", 3, 1, &err) != MHA_OK;
        _exit(bad);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect_content(path, "new");
    assert_int_equal(files_count(folder), 1);
    files_remove(folder);
}

static void folder_without_permission(void **state)
{
    (void)state;
    const char *folder = files_folder();
    if (geteuid() == 0) {
        print_message("skipped: permissions do not restrict root\n");
    } else {
        assert_int_equal(chmod(folder, 0500), 0);
        expect_failure(files_path(folder, "x"), 0, MHA_ERR_IO, "Permission denied");
        assert_int_equal(chmod(folder, 0700), 0);
    }
    files_remove(folder);
}

/* If two processes write the same file at the same time, both must succeed, and the file must have the complete content
 * of one of them. */
static void two_writers(void **state)
{
    (void)state;
    enum { BYTES = 300000, ROUNDS = 20 };
    const char *folder = files_folder(), *path = files_path(folder, "x");
    static char data[BYTES];
    pid_t children[2];
    for (int c = 0; c < 2; c++) {
        children[c] = fork();
        if (children[c] != 0) continue;
        memset(data, 'a' + c, BYTES);
        for (int i = 0; i < ROUNDS; i++)
            if (mha_file_write(path, data, BYTES, 1, NULL) != MHA_OK) _exit(1);
        _exit(0);
    }
    for (int c = 0; c < 2; c++) {
        int status = -1;
        assert_int_equal(waitpid(children[c], &status, 0), children[c]);
        assert_int_equal(status, 0);
    }
    size_t n;
    char *bytes = files_read(path, &n);
    assert_int_equal(n, BYTES);
    memset(data, bytes[0], BYTES);
    assert_true(bytes[0] == 'a' || bytes[0] == 'b');
    assert_memory_equal(bytes, data, BYTES);
    free(bytes);
    assert_int_equal(files_count(folder), 1);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(existing_files_and_overwrite),
        cmocka_unit_test(permissions),
        cmocka_unit_test(relative_names),
        cmocka_unit_test(irregular_files),
        cmocka_unit_test(invalid_names),
        cmocka_unit_test(check_without_writing),
        cmocka_unit_test(leftover_files),
        cmocka_unit_test(existing_temporary_file),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(folder_without_permission),
        cmocka_unit_test(two_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

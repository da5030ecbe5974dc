/* test_io_folder.c - tests the replacement of a folder while other processes replace or remove the same folder.
 *
 * This program replaces two functions of the C library in order to act as the other processes: flock, which locks the
 * folder before its replacement, and openat, which opens the folder again after its replacement. */
#include "io/files/output_folder.h"
#include "support/files.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

static const char *const known[] = {"a", "b", NULL};
static const char *folder;

/* What the other processes do: if `incoming` is set, one renames the folder x to `gone` and the folder `incoming` to x.
 * If `removes` is true, one then removes the first folder whose name begins with ".x.tmp.". */
static const char *incoming;
static bool removes;
/* If true, another process replaces the temporary folder of x with a file of the same name just before the folder is
 * locked. */
static bool takes_the_name;

static void must(bool good, const char *what)
{
    if (!good) fail_msg("%s", what);
}

static void take_the_name(void)
{
    char name[400];
    takes_the_name = false;
    snprintf(name, sizeof name, "%s/.x.tmp.%ld", folder, (long)getpid());
    must(rmdir(name) == 0, "rmdir of the temporary folder must succeed");
    files_write(name, "", 0);
}

int flock(int fd, int operation)
{
    if (takes_the_name && operation == LOCK_EX) take_the_name();
    if (incoming && (operation & LOCK_NB)) {
        char name[400], gone[400], other[400];
        snprintf(name, sizeof name, "%s/x", folder);
        snprintf(gone, sizeof gone, "%s/gone", folder);
        snprintf(other, sizeof other, "%s/%s", folder, incoming);
        must(rename(name, gone) == 0 && rename(other, name) == 0, "both renames of the other process must succeed");
        incoming = NULL;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

int openat(int dir, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    if (removes && !incoming && strncmp(name, ".x.tmp.", 7) == 0) {
        removes = false;
        const int at = (int)syscall(SYS_openat, dir, name, O_RDONLY | O_DIRECTORY, 0);
        must(at >= 0 && unlinkat(at, "a", 0) == 0 && close(at) == 0 && unlinkat(dir, name, AT_REMOVEDIR) == 0,
             "removing");
    }
    return (int)syscall(SYS_openat, dir, name, flags, mode);
}

static void make(const char *name, const char *file, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    must(mkdir(path, 0777) == 0, "mkdir");
    snprintf(path, sizeof path, "%s/%s/%s", folder, name, file);
    files_write(path, text, strlen(text));
}

static void holds(const char *name, const char *file, const char *text)
{
    char path[400];
    size_t n;
    snprintf(path, sizeof path, "%s/%s/%s", folder, name, file);
    char *got = files_read(path, &n);
    if (!got) fail_msg("%s must exist", path);
    assert_string_equal(got, text);
    free(got);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(files_count(path), 1);
}

/* Replaces the folder x, in which file a contains "old", with a folder in which it contains "new". Meanwhile, another
 * process renames the folder `other` to x and, if `removed` is true, removes a temporary folder. */
static mha_status replace(const char *other, bool removed, const char *aside, mha_error *err)
{
    char path[400];
    mha__folder f;
    snprintf(path, sizeof path, "%s/x", folder);
    make("x", "a", "old");
    assert_int_equal(mha__folder_begin(&f, path, true, known, err), MHA_OK);
    assert_int_equal(mha__folder_put(&f, "a", "new", 3, err), MHA_OK);
    if (aside) assert_int_equal(mha__folder_aside(&f, aside, known, err), MHA_OK);
    incoming = other;
    removes = removed;
    const mha_status status = mha__folder_commit(&f, known, err);
    assert_null(incoming);
    assert_false(removes);
    return status;
}

static int begin(void **state)
{
    (void)state;
    folder = files_folder();
    incoming = NULL;
    removes = takes_the_name = false;
    return 0;
}

static int end(void **state)
{
    (void)state;
    char line[400];
    snprintf(line, sizeof line, "rm -rf %s", folder);
    return system(line);
}

static void test_alone(void **state)
{
    (void)state;
    mha_error err = {0};
    assert_int_equal(replace(NULL, false, NULL, &err), MHA_OK);
    holds("x", "a", "new");
    assert_int_equal(files_count(folder), 1);
}

/* If another process has renamed another checkpoint to x, that checkpoint must be replaced as well. */
static void test_another(void **state)
{
    (void)state;
    mha_error err = {0};
    make("y", "b", "theirs");
    assert_int_equal(replace("y", false, NULL, &err), MHA_OK);
    holds("x", "a", "new");
    holds("gone", "a", "old");
    assert_int_equal(files_count(folder), 2);
}

/* After the exchange, the replaced folder has the temporary name. If another process has then removed it, the
 * replacement must succeed. */
static void test_removed(void **state)
{
    (void)state;
    mha_error err = {0};
    make("y", "a", "theirs");
    if (replace("y", true, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    holds("x", "a", "new");
    assert_int_equal(files_count(folder), 2);
}

/* If the folder that another process has renamed to x is not a checkpoint, it must remain, and nothing may be
 * written. */
static void test_foreign(void **state)
{
    (void)state;
    mha_error err = {0};
    make("y", "notes.txt", "mine");
    assert_int_equal(replace("y", false, NULL, &err), MHA_ERR_IO);
    assert_non_null(strstr(err.message, "/x: cannot overwrite: it contains notes.txt"));
    holds("x", "notes.txt", "mine");
    holds("gone", "a", "old");
    assert_int_equal(files_count(folder), 2);
}

/* If the original is renamed to a backup name, nothing is removed. The folder that another process has renamed to x may
 * then contain any file. */
static void test_foreign_aside(void **state)
{
    (void)state;
    mha_error err = {0};
    make("y", "notes.txt", "mine");
    assert_int_equal(replace("y", false, "kept", &err), MHA_OK);
    holds("x", "a", "new");
    holds("kept", "notes.txt", "mine");
    assert_int_equal(files_count(folder), 3);
}

/* If a file has taken the name of the temporary folder, the call must fail with a single error and close each
 * descriptor of the first attempt only once. */
static void test_name_taken(void **state)
{
    (void)state;
    mha_error err = {0};
    mha__folder f;
    takes_the_name = true;
    const char *path = files_path(folder, "x");
    assert_int_equal(mha__folder_begin(&f, path, false, known, &err), MHA_ERR_IO);
    assert_non_null(strstr(err.message, "is in use, or left over from a killed run"));
    assert_false(takes_the_name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_alone, begin, end),
        cmocka_unit_test_setup_teardown(test_another, begin, end),
        cmocka_unit_test_setup_teardown(test_removed, begin, end),
        cmocka_unit_test_setup_teardown(test_foreign, begin, end),
        cmocka_unit_test_setup_teardown(test_foreign_aside, begin, end),
        cmocka_unit_test_setup_teardown(test_name_taken, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

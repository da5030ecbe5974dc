/* test_io_source.c - tests opening of files: paths that are not regular files, file names without a folder, size
 * limits, and files of other formats. */
#include "base/ctx.h"
#include "io/files/input_file.h"
#include "io/input_limits.h"
#include "mha/io.h"
#include "support/files.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void bare_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t n;
        bool bare;
    } cases[] = {
        {"model.safetensors", 17, true},
        {"...", 3, true},
        {".a", 2, true},
        {"..a", 3, true},
        {"a", 1, true},
        {"", 0, false},
        {".", 1, false},
        {"..", 2, false},
        {"../a", 4, false},
        {"/etc/hostname", 13, false},
        {"a/b", 3, false},
        {"a\\b", 3, false},
        {"a\0b", 3, false},
        {"a\0", 2, false},
        {"\\", 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (mha__bare_name(cases[i].name, cases[i].n) != cases[i].bare)
            fail_msg("\"%s\" must be %s", cases[i].name, cases[i].bare ? "accepted as a bare name" : "rejected");
}

static void expect_refusal(const char *path, const char *says)
{
    mha_error err = {0};
    mha_file *file = NULL;
    assert_int_equal(mha_file_open(NULL, path, NULL, &file, &err), MHA_ERR_IO);
    assert_null(file);
    if (!strstr(err.message, path) || !strstr(err.message, says))
        fail_msg("message must contain \"%s\" and \"%s\" (got \"%s\")", path, says, err.message);
}

static void only_regular_files(void **state)
{
    (void)state;
    const char *folder = files_folder();
    const char *path = files_path(folder, "x");
    expect_refusal(path, "No such file");
    expect_refusal(folder, "must be a regular file (got a directory)");
    expect_refusal("/dev/zero", "must be a regular file (got a character device)");
    assert_int_equal(mkfifo(path, 0600), 0); /* opening the FIFO must not block, although it has no writer */
    expect_refusal(path, "must be a regular file (got a fifo)");
    const char *link = files_path(folder, "link");
    assert_int_equal(symlink("x", link), 0);
    expect_refusal(link, "must be a regular file (got a fifo)");
    unlink(path);
    expect_refusal(link, "No such file");
    assert_int_equal(symlink("loop", files_path(folder, "loop")), 0);
    expect_refusal(files_path(folder, "loop"), "symbolic links");
    files_remove(folder);
}

static void links_to_files_are_followed(void **state)
{
    (void)state;
    const char *folder = files_folder();
    files_write(files_path(folder, "x"), "\2\0\0\0\0\0\0\0{}", 10);
    assert_int_equal(symlink("x", files_path(folder, "link")), 0);
    mha_file *file = NULL;
    assert_int_equal(mha_file_open(NULL, files_path(folder, "link"), NULL, &file, NULL), MHA_OK);
    assert_int_equal(mha_file_count(file), 0);
    mha_file_free(file);
    files_remove(folder);
}

static void whole_files(void **state)
{
    (void)state;
    const char *folder = files_folder();
    char *text = NULL;
    size_t n = 7;
    mha_error err = {0};
    files_write(files_path(folder, "a.json"), "{\0}", 3);
    assert_int_equal(mha__read_whole(NULL, folder, "a.json", 3, &text, &n, &err), MHA_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(text, "{\0}", 4);
    mha__free(NULL, text);
    assert_int_equal(mha__read_whole(NULL, NULL, files_path(folder, "a.json"), 3, &text, &n, &err), MHA_OK);
    mha__free(NULL, text);
    files_write(files_path(folder, "empty"), "", 0);
    assert_int_equal(mha__read_whole(NULL, folder, "empty", 3, &text, &n, &err), MHA_OK);
    assert_int_equal(n, 0);
    assert_string_equal(text, "");
    mha__free(NULL, text);

    assert_int_equal(mha__read_whole(NULL, folder, "a.json", 2, &text, &n, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "a.json: size must be at most 2 bytes (got 3)");
    assert_null(text);
    assert_int_equal(mha__read_whole(NULL, folder, "../a.json", 9, &text, &n, &err), MHA_ERR_FORMAT);
    assert_string_equal(err.message, "file name must be a bare name (got \"../a.json\")");
    assert_int_equal(mha__read_whole(NULL, folder, "b.json", 9, &text, &n, &err), MHA_ERR_IO);
    assert_non_null(strstr(err.message, "b.json: cannot open: "));
    assert_int_equal(mha__read_whole(NULL, files_path(folder, "none"), "b.json", 9, &text, &n, &err), MHA_ERR_IO);
    assert_int_equal(mkdir(files_path(folder, "d"), 0700), 0);
    assert_int_equal(mha__read_whole(NULL, folder, "d", 9, &text, &n, &err), MHA_ERR_IO);
    assert_string_equal(err.message, "d: must be a regular file (got a directory)");
    rmdir(files_path(folder, "d"));
    files_remove(folder);
}

/* A config of 4 GiB and weights of 256 GiB (sparse files) must be rejected without being read. */
static void sparse_files(void **state)
{
    (void)state;
    const char *folder = files_folder();
    const char *path = files_path(folder, "config.json");
    char *text = NULL;
    size_t n = 0;
    mha_error err = {0};
    files_write(path, "", 0);
    if (truncate(path, (off_t)1 << 32) == 0) {
        assert_int_equal(mha__read_whole(NULL, folder, "config.json", MHA__CONFIG_BYTES, &text, &n, &err),
                         MHA_ERR_FORMAT);
        assert_string_equal(err.message, "config.json: size must be at most 16777216 bytes (got 4294967296)");
    } else {
        print_message("skipped: cannot create a sparse file of 4 GiB\n");
    }
    if (truncate(path, (off_t)1 << 38) == 0) {
        mha_file *file = NULL;
        assert_int_equal(mha_file_open(NULL, path, NULL, &file, &err), MHA_ERR_FORMAT);
        assert_non_null(strstr(err.message, "header length must be positive (got 0)"));
    } else {
        print_message("skipped: cannot create a sparse file of 256 GiB\n");
    }
    files_remove(folder);
}

static void foreign_files(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        size_t n;
        const char *says;
    } cases[] = {
        {"version https://git-lfs.github.com/spec/v1\n", 44, "Git LFS pointer"},
        {"PK\003\004 zip zip zip zip", 20, "zip archive"},
        {"\x80\002}q\0.aaaaaaaaaaaaa", 19, "pickle"},
        {"\x80\005\x95 aaaaaaaaaaaaaaa", 19, "pickle"},
        {"<!DOCTYPE html><html>", 21, "HTML"},
        {"<html><body>Not here", 20, "HTML"},
        {"\x1f\x8b\x08 aaaaaaaaaaaaaaa", 19, "gzip"},
        {"hello", 5, "file must be safetensors, .npy or GGUF"},
    };
    const char *folder = files_folder();
    const char *path = files_path(folder, "pytorch_model.bin");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mha_error err = {0};
        mha_file *file = NULL;
        files_write(path, cases[i].head, cases[i].n);
        assert_int_equal(mha_file_open(NULL, path, NULL, &file, &err), MHA_ERR_FORMAT);
        if (!strstr(err.message, path) || !strstr(err.message, cases[i].says))
            fail_msg("message must contain \"%s\" and \"%s\" (got \"%s\")", path, cases[i].says, err.message);
    }
    files_remove(folder);
}

/* A safetensors file whose header has 0x280 bytes begins with the same bytes as a pickle file, but must be opened. */
static void pickle_or_safetensors(void **state)
{
    (void)state;
    char bytes[8 + 0x280] = "\x80\2\0\0\0\0\0\0{}";
    memset(bytes + 10, ' ', sizeof bytes - 10);
    const char *folder = files_folder();
    files_write(files_path(folder, "x"), bytes, sizeof bytes);
    mha_file *file = NULL;
    assert_int_equal(mha_file_open(NULL, files_path(folder, "x"), NULL, &file, NULL), MHA_OK);
    mha_file_free(file);
    files_remove(folder);
}

static void arguments(void **state)
{
    (void)state;
    mha_file *file = (mha_file *)&file;
    mha_error err = {0};
    assert_int_equal(mha_file_open(NULL, NULL, NULL, &file, &err), MHA_ERR_ARG);
    assert_null(file);
    assert_int_equal(mha_file_open(NULL, "x", NULL, NULL, &err), MHA_ERR_ARG);
    const mha_file_options options = {.size = 3};
    assert_int_equal(mha_file_open(NULL, "x", &options, &file, &err), MHA_ERR_ARG);
    mha_file_free(NULL);
}

/* Truncates a file while it is open. As specified in io.h, reading a mapped file must then raise SIGBUS, which ends the
 * process (here a child). Reading a copied file must succeed. */
static void shortened_while_open(void **state)
{
    (void)state;
    enum { BYTES = 4096 };
    static char bytes[8 + 72 + BYTES];
    const uint64_t header = 72;
    memcpy(bytes, &header, 8);
    snprintf(bytes + 8, 73, "%-72s", "{\"x\":{\"dtype\":\"U8\",\"shape\":[4096],\"data_offsets\":[0,4096]}}");
    memset(bytes + 80, 7, BYTES);
    const char *folder = files_folder(), *path = files_path(folder, "x.safetensors");
    for (int no_map = 0; no_map < 2; no_map++) {
        const mha_file_options options = {.size = sizeof options, .no_map = no_map};
        mha_file *file = NULL;
        mha_error err = {0};
        files_write(path, bytes, sizeof bytes);
        if (mha_file_open(NULL, path, &options, &file, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(truncate(path, 0), 0);
        const pid_t child = fork();
        if (child == 0) {
            signal(SIGBUS, SIG_DFL); /* removes a handler that a sanitizer may have installed */
            const volatile char *data = mha_file_tensor(file, 0)->data;
            _exit(data[BYTES - 1] == 7 ? 0 : 1);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (no_map)
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        else
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
        mha_file_free(file);
    }
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bare_names),
        cmocka_unit_test(only_regular_files),
        cmocka_unit_test(links_to_files_are_followed),
        cmocka_unit_test(whole_files),
        cmocka_unit_test(sparse_files),
        cmocka_unit_test(foreign_files),
        cmocka_unit_test(pickle_or_safetensors),
        cmocka_unit_test(arguments),
        cmocka_unit_test(shortened_while_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

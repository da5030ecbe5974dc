/* test_model_save_failures.c - tests saving of a model over existing files. If saving fails, is canceled or is killed,
 * existing files must be unchanged. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/save_case.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const tiny = "models/gpt2-tiny";

/* ---- existing files ---- */

static void test_existing_folders(void **state)
{
    (void)state;
    save_path at_out, at_link;
    const char *folder = files_folder(), *out = save_path_of(&at_out, folder, "out"),
               *link = save_path_of(&at_link, folder, "link");
    mha_model *model = case_open(NULL, tiny);
    assert_int_equal(mkdir(out, 0755), 0);
    save_model(model, out, NULL); /* saving to an empty folder must succeed */
    save_refused(model, out, NULL, MHA_ERR_IO, "it contains");
    files_write(files_path(out, "diary.txt"), "dear", 4);
    save_refused(model, out, SAVE(.overwrite = 1), MHA_ERR_IO, "diary.txt, which is not a checkpoint file");
    assert_int_equal(unlink(files_path(out, "diary.txt")), 0);
    assert_int_equal(mkdir(files_path(out, "x.safetensors"), 0755), 0);
    save_refused(model, out, SAVE(.overwrite = 1), MHA_ERR_IO, "x.safetensors");
    assert_int_equal(rmdir(files_path(out, "x.safetensors")), 0);
    save_model(model, out, SAVE(.overwrite = 1));
    assert_int_equal(symlink("out", link), 0);
    save_refused(model, link, SAVE(.overwrite = 1), MHA_ERR_IO, "a symbolic link");
    assert_int_equal(unlink(link), 0);
    save_refused(model, files_path(out, "config.json"), SAVE(.overwrite = 1), MHA_ERR_IO, "it is a file");
    save_refused(model, files_path(folder, "no/where"), NULL, MHA_ERR_IO, "No such file");
    save_refused(model, "", NULL, MHA_ERR_IO, "cannot write");
    save_refused(model, "/", NULL, MHA_ERR_IO, "cannot write");
    save_refused(model, files_path(folder, ".."), NULL, MHA_ERR_IO, "cannot write");
    char slashes[500];
    snprintf(slashes, sizeof slashes, "%s//", out);
    save_model(model, slashes, SAVE(.overwrite = 1));
    assert_null(save_others_in(folder, "out"));
    mha_model_free(model);
    files_remove(out);
    files_remove(folder);
}

/* Saving over the folder from which the model was opened must succeed and not change the mapped weights of the open
 * model. */
static void test_saving_over_the_source_folder(void **state)
{
    (void)state;
    const char *copy = case_copy(tiny);
    mha_model *model = case_open(NULL, copy);
    const uint64_t print = save_hash(model);
    save_model(model, copy, SAVE(.overwrite = 1));
    assert_true(save_hash(model) == print && save_hash_in(copy) == print);
    mha_model_free(model);
    files_remove(copy);
}

/* mha_model_save_check must return the same errors as a save and must not change any file. */
static void test_save_check(void **state)
{
    (void)state;
    mha_error err = {0};
    save_path at_out;
    const char *folder = files_folder(), *out = save_path_of(&at_out, folder, "out");
    assert_int_equal(mha_model_save_check(out, 0, &err), MHA_OK);
    assert_int_equal(files_count(folder), 0);
    mha_model *model = case_open(NULL, tiny);
    save_model(model, out, NULL);
    mha_model_free(model);
    assert_int_equal(mha_model_save_check(out, 0, &err), MHA_ERR_IO);
    assert_non_null(strstr(err.message, "it contains"));
    assert_int_equal(mha_model_save_check(out, 1, &err), MHA_OK);
    files_write(files_path(out, "diary.txt"), "dear", 4);
    assert_int_equal(mha_model_save_check(out, 1, &err), MHA_ERR_IO);
    assert_non_null(strstr(err.message, "diary.txt, which is not a checkpoint file"));
    assert_int_equal(mha_model_save_check(files_path(folder, "no/where"), 1, &err), MHA_ERR_IO);
    assert_int_equal(mha_model_save_check(NULL, 1, &err), MHA_ERR_ARG);
    files_remove(out);
    files_remove(folder);
}

/* ---- failures ---- */

/* If the disk is full, saving must fail and leave the old folder (or no folder, if there was none). A limit on the file
 * size simulates a full disk; it is set in a child process, because it cannot be raised again. */
static void test_full_disk(void **state)
{
    (void)state;
    save_path at_out;
    const char *folder = files_folder(), *out = save_path_of(&at_out, folder, "out");
    mha_model *model = case_open(NULL, tiny);
    save_model(model, out, NULL);
    for (int there = 1; there >= 0; there--) {
        const pid_t child = fork();
        if (child == 0) {
            const struct rlimit limit = {100000, 100000};
            mha_error err = {0};
            signal(SIGXFSZ, SIG_IGN);
            int bad = setrlimit(RLIMIT_FSIZE, &limit) != 0;
            bad |= mha_model_save(model, out, SAVE(.overwrite = 1), &err) != MHA_ERR_IO;
            bad |= !strstr(err.message, "model.safetensors") || !strstr(err.message, "File too large");
            _exit(bad);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_null(save_others_in(folder, "out"));
        if (!there) break;
        assert_true(save_hash_in(out) == save_hash(model));
        files_remove(out);
    }
    assert_int_not_equal(access(out, F_OK), 0);
    mha_model_free(model);
    files_remove(folder);
}

static int die_at(void *user, const char *what, int64_t done, int64_t total)
{
    int *left = user;
    (void)what, (void)done, (void)total;
    if ((*left)-- == 0) kill(getpid(), SIGKILL);
    return 0;
}

/* If the process is killed while saving, the folder must be the complete old folder or be absent. Its temporary files
 * must not prevent a later save. */
static void test_killed(void **state)
{
    (void)state;
    save_path at_out;
    const char *folder = files_folder(), *out = save_path_of(&at_out, folder, "out");
    for (int there = 0; there < 2; there++)
        for (int at = 0; at < 20; at += 6) {
            const pid_t child = fork();
            if (child == 0) {
                int left = at;
                const mha_ctx_options o = {.size = sizeof o, .threads = 1, .progress = die_at, .progress_user = &left};
                mha_ctx *ctx = NULL;
                if (mha_ctx_create(&o, &ctx, NULL) != MHA_OK) _exit(1);
                mha_model_save(case_open(ctx, "models/gemma2-tiny"), out, SAVE(.overwrite = 1), NULL);
                _exit(2);
            }
            int status = -1;
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            char *rest = save_others_in(folder, "out");
            assert_true(rest && strncmp(rest, ".out.tmp.", 9) == 0);
            *strchr(rest, ' ') = '\0';
            files_remove(files_path(folder, rest));
            if (there)
                assert_true(save_hash_in(out) == save_hash_in(tiny));
            else
                assert_int_not_equal(access(out, F_OK), 0);
            if (!there && at + 6 >= 20) {
                mha_model *model = case_open(NULL, tiny);
                save_model(model, out, NULL);
                mha_model_free(model);
            }
        }
    assert_null(save_others_in(folder, "out"));
    files_remove(out);
    files_remove(folder);
}

/* If a process is killed between two renames, the old folder remains under a temporary name. The next save must keep it
 * if no folder of the original name exists or if it is locked, and must remove it otherwise. */
static void test_old_folder_of_a_killed_process(void **state)
{
    (void)state;
    save_path at_out, at_old;
    const char *folder = files_folder(), *out = save_path_of(&at_out, folder, "out"),
               *old = save_path_of(&at_old, folder, ".out.old.77");
    mha_model *model = case_open(NULL, tiny);
    save_model(model, old, NULL);
    save_model(model, out, NULL);
    assert_int_equal(access(old, F_OK), 0);
    const int fd = open(old, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    save_model(model, out, SAVE(.overwrite = 1));
    assert_int_equal(access(old, F_OK), 0);
    close(fd);
    save_model(model, out, SAVE(.overwrite = 1));
    assert_null(save_others_in(folder, "out"));
    mha_model_free(model);
    files_remove(out);
    files_remove(folder);
}

static int stop_at_once(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    assert_string_equal(what, "save");
    assert_true(done > 0 && done <= total);
    return 1;
}

static void test_canceled(void **state)
{
    (void)state;
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .progress = stop_at_once};
    const char *folder = files_folder();
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    mha_model *model = case_open(ctx, tiny);
    save_refused(model, files_path(folder, "out"), NULL, MHA_ERR_CANCELED, "");
    assert_int_equal(files_count(folder), 0);
    mha_model_free(model);
    mha_ctx_free(ctx);
    files_remove(folder);
}

/* Saving to a folder without write permission must fail. Root may write to any folder, so as root, the test changes to
 * another user. */
static void test_no_permission(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    const char *folder = files_folder();
    mha_model *model = case_open(NULL, tiny);
    assert_int_equal(chmod(folder, 0555), 0);
    const pid_t child = fork();
    if (child == 0) {
        mha_error err = {0};
        if (geteuid() == 0 && setuid(NOBODY) != 0) _exit(1);
        int bad = mha_model_save(model, files_path(folder, "out"), NULL, &err) != MHA_ERR_IO;
        bad |= !strstr(err.message, "Permission denied");
        _exit(bad);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(files_count(folder), 0);
    mha_model_free(model);
    files_remove(folder);
}

/* With a budget of 0, 1, 2, ... allocations, each failed save must return MHA_ERR_MEMORY, free its memory and leave all
 * files unchanged. */
static void test_no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    save_path at_out;
    const char *folder = files_folder(), *out = save_path_of(&at_out, folder, "out");
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    mha_model *model = case_open(ctx, tiny);
    const long live = memory.live;
    mha_status status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        memory.budget = memory.calls + n;
        status = mha_model_save(model, out, SAVE(.dtype = MHA_BF16), NULL);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        assert_int_equal(memory.live, live);
        assert_int_equal(files_count(folder), status == MHA_OK);
    }
    assert_true(n > 5);
    memory.budget = -1;
    mha_model_free(model);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
    files_remove(out);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_existing_folders), cmocka_unit_test(test_saving_over_the_source_folder),
        cmocka_unit_test(test_save_check),       cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_killed),           cmocka_unit_test(test_old_folder_of_a_killed_process),
        cmocka_unit_test(test_canceled),         cmocka_unit_test(test_no_permission),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

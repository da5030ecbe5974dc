/* test_model_save.c - tests saving of a model to a folder. The saved model must give bitwise identical results. If
 * saving fails, existing files must be unchanged. */
#include "mha/model_save.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAVE(...) (&(mha_model_save_options){.size = sizeof(mha_model_save_options), __VA_ARGS__})
static const char *const tiny = "models/gpt2-tiny";

/* A buffer for the path of a file in a folder. Unlike that of files_path, the path remains valid after further
 * calls. */
typedef struct room {
    char text[400];
} room;
static const char *place(room *r, const char *folder, const char *name)
{
    snprintf(r->text, sizeof r->text, "%s/%s", folder, name);
    return r->text;
}

static void save(const mha_model *model, const char *folder, const mha_model_save_options *options)
{
    mha_error err = {0};
    if (mha_model_save(model, folder, options, &err) != MHA_OK) fail_msg("%s", err.message);
}

static void not_saved(const mha_model *model, const char *folder, const mha_model_save_options *options,
                      mha_status status, const char *part)
{
    mha_error err = {0};
    assert_int_equal(mha_model_save(model, folder, options, &err), status);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

/* Returns a hash of the last hidden states of fixed tokens, by which models are compared. */
static uint64_t print_of(const mha_model *model)
{
    const int32_t ids[6] = {1, 2, 3, 50, 60, 70};
    const int64_t count = 6 * mha_model_describe(model)->hidden;
    float *x = calloc((size_t)count, sizeof *x);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 6, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .last_hidden = x};
    uint64_t print = 1469598103934665603u;
    assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
    for (size_t n = 0; n < (size_t)count * sizeof *x; n++)
        print = (print ^ ((unsigned char *)x)[n]) * 1099511628211u;
    free(x);
    return print;
}

static uint64_t print_in(const char *folder)
{
    mha_model *model = case_open(NULL, folder);
    const uint64_t print = print_of(model);
    mha_model_free(model);
    return print;
}

/* Returns the names of all entries of a folder except `but`, or NULL if there are none. */
static char *others_in(const char *folder, const char *but)
{
    static char names[1000];
    DIR *entries = opendir(folder);
    names[0] = '\0';
    assert_non_null(entries);
    for (struct dirent *e = readdir(entries); e; e = readdir(entries))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && strcmp(e->d_name, but) != 0)
            strncat(strncat(names, e->d_name, 400), " ", 2);
    closedir(entries);
    return names[0] ? names : NULL;
}

static void expect_same_bytes(const char *a, const char *b)
{
    size_t n = 0, m = 0;
    char *x = files_read(a, &n), *y = files_read(b, &m);
    assert_true(x && y && n == m && memcmp(x, y, n) == 0);
    free(x);
    free(y);
}

/* ---- saved files ---- */

static void test_the_same_model_comes_out(void **state)
{
    (void)state;
    static const char *const folders[] = {"models/gpt2-tiny", "models/gemma2-tiny", "models/bert-mlm-tiny",
                                          "models/bert-mlm-tiny-hubnames"};
    const char *folder = files_folder();
    for (int f = 0; f < 4; f++) {
        room at_out;
        const char *out = place(&at_out, folder, "out");
        mha_model *model = case_open(NULL, folders[f]);
        mha_file *before = NULL, *after = NULL;
        char stored[300];
        save(model, out, SAVE(.overwrite = f > 0));
        assert_true(print_in(out) == print_of(model));
        snprintf(stored, sizeof stored, "%s/%s", MHA_TEST_DATA, folders[f]);
        before = case_file(files_path(stored, "model.safetensors"));
        after = case_file(files_path(out, "model.safetensors"));
        assert_int_equal(mha_file_count(before), mha_file_count(after));
        for (int64_t n = 0; n < mha_file_count(before); n++) {
            const mha_tensor *x = mha_file_tensor(before, n), *y = mha_file_tensor(after, n);
            assert_string_equal(x->name, y->name);
            assert_true(x->dtype == y->dtype && x->bytes == y->bytes && x->rank == y->rank);
            assert_memory_equal(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape);
            assert_memory_equal(x->data, y->data, x->bytes);
            assert_true(mha_tensor_aligned(y));
        }
        assert_true(mha_file_metadata_count(after) >= 1);
        expect_same_bytes(files_path(stored, "config.json"), files_path(out, "config.json"));
        expect_same_bytes(files_path(stored, "tokenizer.json"), files_path(out, "tokenizer.json"));
        mha_file_free(before);
        mha_file_free(after);
        mha_model_free(model);
        assert_null(others_in(folder, "out"));
    }
    files_remove(files_path(folder, "out"));
    files_remove(folder);
}

/* A saved config must contain a dtype even if the given config has none, because transformers 5 assumes f32 if it is
 * absent. */
static void test_a_config_without_a_type(void **state)
{
    (void)state;
    const char *folder = files_folder();
    mha_model *model = case_open(NULL, tiny);
    room at_out;
    const char *out = place(&at_out, folder, "out");
    json_t *config = json_loads(mha_model_config_json(model), 0, NULL);
    json_object_del(config, "dtype");
    json_object_del(config, "torch_dtype");
    char *bare = json_dumps(config, 0);
    save(model, out, SAVE(.dtype = MHA_BF16, .config_json = bare));
    json_decref(config);
    config = json_load_file(files_path(out, "config.json"), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(config, "dtype")), "bfloat16");
    assert_null(json_object_get(config, "torch_dtype"));
    json_decref(config);
    free(bare);
    mha_model_free(model);
    files_remove(folder);
}

static void test_other_types(void **state)
{
    (void)state;
    static const mha_dtype dtypes[] = {MHA_BF16, MHA_F16, MHA_F32};
    static const char *const names[] = {"bfloat16", "float16", "float32"};
    const char *folder = files_folder();
    mha_model *model = case_open(NULL, tiny);
    for (int d = 0; d < 3; d++) {
        room at_out;
        const char *out = place(&at_out, folder, names[d]);
        size_t bytes = 0;
        save(model, out, SAVE(.dtype = dtypes[d]));
        mha_model *other = case_open(NULL, out);
        assert_int_equal(mha_model_describe(other)->dtype, dtypes[d]);
        assert_true((print_of(other) == print_of(model)) == (dtypes[d] == MHA_F32));
        char *config = files_read(files_path(out, "config.json"), &bytes);
        assert_true(config && strstr(config, names[d]) && strstr(config, "\"layer_norm_epsilon\""));
        free(config);
        mha_file *file = case_file(files_path(out, "model.safetensors"));
        const mha_tensor *words = mha_file_find(file, "transformer.wte.weight");
        assert_true(words && words->dtype == dtypes[d]);
        mha_file_free(file);
        mha_model_free(other);
        files_remove(out);
    }
    mha_model_free(model);
    files_remove(folder);
}

/* Tensors of the caller must replace stored tensors of the same name or be added. A tensor of the wrong shape must be
 * rejected. */
static void test_replaced_tensors(void **state)
{
    (void)state;
    enum { E = 48 };
    static float gain[E], extra[6];
    room at_out;
    const char *folder = files_folder(), *out = place(&at_out, folder, "out");
    mha_model *model = case_open(NULL, tiny);
    mha_named_tensor tensors[] = {{"transformer.ln_f.weight", MHA_F32, 1, {E}, gain},
                                  {"something.new", MHA_F32, 2, {2, 3}, extra}};
    for (int n = 0; n < E; n++)
        gain[n] = (float)n;
    save(model, out, SAVE(.tensors = tensors, .count = 2));
    mha_file *file = case_file(files_path(out, "model.safetensors"));
    assert_memory_equal(mha_file_find(file, "transformer.ln_f.weight")->data, gain, sizeof gain);
    assert_int_equal(mha_file_find(file, "something.new")->elements, 6);
    mha_file_free(file);
    assert_true(print_in(out) != print_of(model));
    tensors[0].shape[0] = E - 1;
    const uint64_t kept = print_in(out);
    not_saved(model, out, SAVE(.tensors = tensors, .count = 1, .overwrite = 1), MHA_ERR_FORMAT, "ln_f.weight");
    not_saved(model, out, SAVE(.config_json = "{\"model_type\": \"gpt2\"}", .overwrite = 1), MHA_ERR_FORMAT, "shape");
    not_saved(model, out, SAVE(.config_json = "{", .overwrite = 1), MHA_ERR_FORMAT, "config.json");
    assert_true(print_in(out) == kept);
    assert_null(others_in(folder, "out"));
    tensors[1].name = tensors[0].name = "twice";
    not_saved(model, out, SAVE(.tensors = tensors, .count = 2, .overwrite = 1), MHA_ERR_ARG, "twice");
    tensors[0].dtype = MHA_F64;
    not_saved(model, out, SAVE(.tensors = tensors, .count = 1), MHA_ERR_ARG, "tensors[0] must be f32");
    not_saved(model, out, SAVE(.dtype = MHA_F64), MHA_ERR_ARG, "dtype must be one of f32, bf16, f16 (got f64)");
    not_saved(model, NULL, NULL, MHA_ERR_ARG, "folder must not be NULL");
    not_saved(NULL, out, NULL, MHA_ERR_ARG, "model must not be NULL");
    mha_model_free(model);
    files_remove(out);
    files_remove(folder);
}

/* A model opened with tensors of the caller must use these tensors and save them. */
static void test_replaced_at_opening(void **state)
{
    (void)state;
    enum { E = 48 };
    static float gain[E];
    room at_out;
    const char *folder = files_folder(), *out = place(&at_out, folder, "out");
    mha_named_tensor tensors[] = {{"transformer.ln_f.weight", MHA_F32, 1, {E}, gain},
                                  {"a.new.one", MHA_F32, 1, {E}, gain}};
    mha_model_options options = {.size = sizeof options, .no_tokenizer = 1, .tensors = tensors, .tensor_count = 2};
    for (int n = 0; n < E; n++)
        gain[n] = (float)n / E;
    mha_model *plain = case_open(NULL, tiny), *model = case_model(NULL, tiny, &options), *none = NULL;
    assert_true(print_of(model) != print_of(plain));
    save(model, out, NULL);
    assert_true(print_in(out) == print_of(model));
    mha_file *file = case_file(files_path(out, "model.safetensors"));
    assert_memory_equal(mha_file_find(file, "a.new.one")->data, gain, sizeof gain);
    mha_file_free(file);
    mha_error err = {0};
    tensors[1].name = tensors[0].name;
    assert_int_equal(mha_model_open(NULL, out, &options, &none, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "names of tensors must be unique (got \"transformer.ln_f.weight\" twice)"));
    tensors[0].shape[0] = 1, options.tensor_count = 1;
    assert_int_equal(mha_model_open(NULL, out, &options, &none, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "must be [48], as config.json requires (got [1])"));
    tensors[0].data = NULL;
    assert_int_equal(mha_model_open(NULL, out, &options, &none, &err), MHA_ERR_ARG);
    options.tensor_count = -1;
    assert_int_equal(mha_model_open(NULL, out, &options, &none, &err), MHA_ERR_ARG);
    mha_model_free(plain);
    mha_model_free(model);
    files_remove(out);
    files_remove(folder);
}

/* Saving must preserve the keys of pruned models and unknown keys. */
static void test_keys_stay(void **state)
{
    (void)state;
    room at_out;
    const char *copy = case_copy(tiny), *folder = files_folder(), *out = place(&at_out, folder, "out");
    size_t n = 0;
    char *config = files_read(files_path(copy, "config.json"), &n), *more = malloc(n + 200);
    assert_non_null(config);
    char *brace = strchr(config, '{');
    mha_model *plain = case_open(NULL, copy);
    const mha_model_info *info = mha_model_describe(plain);
    int used = sprintf(more, "{\"my.key\": [1, {\"a\": null}], \"mha.heads\": [");
    for (int64_t layer = 0; layer < info->layers; layer++) {
        used += sprintf(more + used, "%s[", layer ? ", " : "");
        for (int64_t h = 0; h < info->heads; h++)
            used += sprintf(more + used, "%s%d", h ? ", " : "", (int)h);
        used += sprintf(more + used, "]");
    }
    strcpy(more + used + sprintf(more + used, "], "), brace + 1);
    mha_model_free(plain);
    files_write(files_path(copy, "config.json"), more, strlen(more));
    mha_model *model = case_open(NULL, copy);
    save(model, out, NULL);
    expect_same_bytes(files_path(copy, "config.json"), files_path(out, "config.json"));
    save(model, out, SAVE(.dtype = MHA_BF16, .overwrite = 1));
    char *written = files_read(files_path(out, "config.json"), &n);
    assert_true(strstr(written, "\"my.key\"") && strstr(written, "\"mha.heads\""));
    mha_model_free(case_open(NULL, out));
    mha_model_free(model);
    free(written);
    free(config);
    free(more);
    files_remove(out);
    files_remove(folder);
    files_remove(copy);
}

/* ---- existing files ---- */

static void test_existing_folders(void **state)
{
    (void)state;
    room at_out, at_link;
    const char *folder = files_folder(), *out = place(&at_out, folder, "out"), *link = place(&at_link, folder, "link");
    mha_model *model = case_open(NULL, tiny);
    assert_int_equal(mkdir(out, 0755), 0);
    save(model, out, NULL); /* saving to an empty folder must succeed */
    not_saved(model, out, NULL, MHA_ERR_IO, "it contains");
    files_write(files_path(out, "diary.txt"), "dear", 4);
    not_saved(model, out, SAVE(.overwrite = 1), MHA_ERR_IO, "diary.txt, which is not a checkpoint file");
    assert_int_equal(unlink(files_path(out, "diary.txt")), 0);
    assert_int_equal(mkdir(files_path(out, "x.safetensors"), 0755), 0);
    not_saved(model, out, SAVE(.overwrite = 1), MHA_ERR_IO, "x.safetensors");
    assert_int_equal(rmdir(files_path(out, "x.safetensors")), 0);
    save(model, out, SAVE(.overwrite = 1));
    assert_int_equal(symlink("out", link), 0);
    not_saved(model, link, SAVE(.overwrite = 1), MHA_ERR_IO, "a symbolic link");
    assert_int_equal(unlink(link), 0);
    not_saved(model, files_path(out, "config.json"), SAVE(.overwrite = 1), MHA_ERR_IO, "it is a file");
    not_saved(model, files_path(folder, "no/where"), NULL, MHA_ERR_IO, "No such file");
    not_saved(model, "", NULL, MHA_ERR_IO, "cannot write");
    not_saved(model, "/", NULL, MHA_ERR_IO, "cannot write");
    not_saved(model, files_path(folder, ".."), NULL, MHA_ERR_IO, "cannot write");
    char slashes[500];
    snprintf(slashes, sizeof slashes, "%s//", out);
    save(model, slashes, SAVE(.overwrite = 1));
    assert_null(others_in(folder, "out"));
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
    const uint64_t print = print_of(model);
    save(model, copy, SAVE(.overwrite = 1));
    assert_true(print_of(model) == print && print_in(copy) == print);
    mha_model_free(model);
    files_remove(copy);
}

/* ---- failures ---- */

/* If the disk is full, saving must fail and leave the old folder (or no folder, if there was none). A limit on the file
 * size simulates a full disk; it is set in a child process, because it cannot be raised again. */
static void test_full_disk(void **state)
{
    (void)state;
    room at_out;
    const char *folder = files_folder(), *out = place(&at_out, folder, "out");
    mha_model *model = case_open(NULL, tiny);
    save(model, out, NULL);
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
        assert_null(others_in(folder, "out"));
        if (!there) break;
        assert_true(print_in(out) == print_of(model));
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
    room at_out;
    const char *folder = files_folder(), *out = place(&at_out, folder, "out");
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
            char *rest = others_in(folder, "out");
            assert_true(rest && strncmp(rest, ".out.tmp.", 9) == 0);
            *strchr(rest, ' ') = '\0';
            files_remove(files_path(folder, rest));
            if (there)
                assert_true(print_in(out) == print_in(tiny));
            else
                assert_int_not_equal(access(out, F_OK), 0);
            if (!there && at + 6 >= 20) {
                mha_model *model = case_open(NULL, tiny);
                save(model, out, NULL);
                mha_model_free(model);
            }
        }
    assert_null(others_in(folder, "out"));
    files_remove(out);
    files_remove(folder);
}

/* If a process is killed between two renames, the old folder remains under a temporary name. The next save must keep it
 * if no folder of the original name exists or if it is locked, and must remove it otherwise. */
static void test_old_folder_of_a_killed_process(void **state)
{
    (void)state;
    room at_out, at_old;
    const char *folder = files_folder(), *out = place(&at_out, folder, "out"),
               *old = place(&at_old, folder, ".out.old.77");
    mha_model *model = case_open(NULL, tiny);
    save(model, old, NULL);
    save(model, out, NULL);
    assert_int_equal(access(old, F_OK), 0);
    const int fd = open(old, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    save(model, out, SAVE(.overwrite = 1));
    assert_int_equal(access(old, F_OK), 0);
    close(fd);
    save(model, out, SAVE(.overwrite = 1));
    assert_null(others_in(folder, "out"));
    mha_model_free(model);
    files_remove(out);
    files_remove(folder);
}

/* mha_model_save_check must return the same errors as a save and must not change any file. */
static void test_save_check(void **state)
{
    (void)state;
    mha_error err = {0};
    room at_out;
    const char *folder = files_folder(), *out = place(&at_out, folder, "out");
    assert_int_equal(mha_model_save_check(out, 0, &err), MHA_OK);
    assert_int_equal(files_count(folder), 0);
    mha_model *model = case_open(NULL, tiny);
    save(model, out, NULL);
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

static int stop_at_once(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    assert_string_equal(what, "save");
    assert_true(done > 0 && done <= total);
    return 1;
}

static void test_cancelled(void **state)
{
    (void)state;
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .progress = stop_at_once};
    const char *folder = files_folder();
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    mha_model *model = case_open(ctx, tiny);
    not_saved(model, files_path(folder, "out"), NULL, MHA_ERR_CANCELLED, "");
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
    room at_out;
    const char *folder = files_folder(), *out = place(&at_out, folder, "out");
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
        cmocka_unit_test(test_the_same_model_comes_out),
        cmocka_unit_test(test_a_config_without_a_type),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_replaced_tensors),
        cmocka_unit_test(test_replaced_at_opening),
        cmocka_unit_test(test_keys_stay),
        cmocka_unit_test(test_existing_folders),
        cmocka_unit_test(test_saving_over_the_source_folder),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_old_folder_of_a_killed_process),
        cmocka_unit_test(test_save_check),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_no_permission),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

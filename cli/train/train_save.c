/* train_save.c - writes the files of a training run: training.json (settings and data digest), training.jsonl (log) and
 * training.html (page). They are part of the checkpoint, which is written atomically. */
#include "input/input.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "session.h"
#include "train/train_page.h"
#include "train/train_run.h"
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTINGS "training.json"
#define LOG "training.jsonl"
#define PAGE "training.html"

bool train_run_is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

const char *train_run_path(const cli_session *s, const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", s->options.out, name);
    return path;
}

/* ---- files of a checkpoint ---- */

static json_t *data_json(const mha_train_data *data)
{
    const mha_train_data_info *info = mha_train_data_describe(data);
    return json_pack("{s:I, s:I, s:s}", "tokens", (json_int_t)info->tokens, "sequences", (json_int_t)info->sequences,
                     "digest", info->digest);
}

static json_t *teacher_json(const train_run *run)
{
    return json_pack("{s:s}", "digest", run->teacher_digest);
}

static char *settings_text(const train_run *run)
{
    json_t *all = json_pack("{s:s, s:o, s:o}", "mha", mha_version(), "settings", train_settings_json(&run->t), "data",
                            data_json(run->data));
    bool whole = all && json_object_set_new(all, "follows", train_settings_following(&run->t)) == 0;
    if (run->t.eval.count) whole = whole && json_object_set_new(all, "eval", data_json(run->held)) == 0;
    if (run->teacher) whole = whole && json_object_set_new(all, "teacher", teacher_json(run)) == 0;
    char *text = whole ? json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(all);
    return text;
}

static int page_text(const train_run *run, char **text, size_t *bytes)
{
    FILE *out = cli_memory_open(text, bytes);
    const int whole = train_page_write(run, out);
    fclose(out);
    return whole ? CLI_DONE : cli_error(run->s, CLI_FAILED, "out of memory for the page");
}

static int save(train_run *run, const mha_train_file *files, int64_t count)
{
    const cli_session *s = run->s;
    mha_error error = {0};
    if (mha_train_store_save(run->store, run->trainer, files, count, &error) != MHA_OK) return cli_fail(s, &error);
    if (mha_train_log_write_to(run->log, train_run_path(s, LOG), 0, &error) != MHA_OK) return cli_fail(s, &error);
    return CLI_DONE;
}

/* Sends the optimizer state of this rank to rank 0. */
static int share(const train_run *run)
{
    mha_error error = {0};
    return mha_trainer_save(run->trainer, NULL, NULL, &error) == MHA_OK ? CLI_DONE : cli_fail(run->s, &error);
}

int train_run_save(train_run *run)
{
    if (!train_run_leads(run)) return share(run);
    char *settings = settings_text(run), *page = NULL;
    size_t page_bytes = 0, log_bytes;
    const char *log = mha_train_log_lines(run->log, &log_bytes);
    int code = settings ? CLI_DONE : cli_error(run->s, CLI_FAILED, "out of memory for the settings");
    if (code == CLI_DONE) code = page_text(run, &page, &page_bytes);
    if (code == CLI_DONE)
        code = save(run,
                    (const mha_train_file[]){
                        {SETTINGS, settings, strlen(settings)}, {LOG, log, log_bytes}, {PAGE, page, page_bytes}},
                    3);
    free(settings);
    free(page);
    return code;
}

/* ---- export ---- */

/* The file that identifies an export of this run. It contains the digest of the data. */
#define MARK "training.export"
enum { MARK_BYTES = 64 };

static void format_mark(const char *digest, char mark[MARK_BYTES])
{
    snprintf(mark, MARK_BYTES, "{\"data\": \"%.16s\"}\n", digest);
}

bool train_run_is_export(const train_run *run, const char *folder)
{
    char path[PATH_MAX], mark[MARK_BYTES], found[MARK_BYTES] = "";
    const char *digest = json_string_value(json_object_get(json_object_get(run->was, "data"), "digest"));
    if (!digest || snprintf(path, sizeof path, "%s/" MARK, folder) >= PATH_MAX) return false;
    const int fd = cli_open_at(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return false;
    const ssize_t bytes = read(fd, found, sizeof found);
    close(fd);
    format_mark(digest, mark);
    return bytes == (ssize_t)strlen(mark) && memcmp(found, mark, (size_t)bytes) == 0;
}

int train_run_export(const train_run *run)
{
    const cli_session *s = run->s;
    const train_settings *t = &run->t;
    mha_error error = {0};
    char mark[MARK_BYTES];
    format_mark(mha_train_data_describe(run->data)->digest, mark);
    const mha_trainer_save_options o = {.size = sizeof o,
                                        .model_only = 1,
                                        .overwrite = run->own_export,
                                        .files = &(mha_train_file){MARK, mark, strlen(mark)},
                                        .file_count = 1,
                                        .dtype = cli_dtype(t->export_dtype ? t->export_dtype : "bf16")};
    if (!t->export) return CLI_DONE;
    return mha_trainer_save(run->trainer, t->export, &o, &error) == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

/* ---- settings and data of the checkpoint ---- */

int train_run_load(train_run *run)
{
    const char *path = train_run_path(run->s, SETTINGS);
    int code = cli_file_check(run->s, path);
    if (code == CLI_DONE) code = cli_json_read(run->s, path, &run->was);
    if (code != CLI_DONE) return code;
    code = train_settings_take(run->s, path, json_object_get(run->was, "settings"), &run->t);
    run->was_heads = run->t.heads;
    run->was_end = run->t.gates_end;
    train_settings_unset(&run->t, json_object_get(run->was, "follows"));
    return code;
}

/* Returns true if a setting defines the model. */
static bool is_of_model(const char *key)
{
    static const char *const keys[] = {"from", "shape", "tokenizer", "vocab"};
    bool found = false;
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
        found |= strcmp(keys[n], key) == 0;
    return found;
}

/* Returns a setting as text, which the caller must free. */
static char *value_text(const json_t *value)
{
    return value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6)) : strdup("unset");
}

static void tell_change(const cli_session *s, const char *key, const json_t *was, const json_t *now)
{
    if (json_equal(now, was)) return;
    if (now && is_of_model(key)) cli_say(s, "ignoring %s: the checkpoint defines the model", key);
    if (is_of_model(key)) return;
    char *texts[] = {value_text(was), value_text(now)};
    if (texts[0] && texts[1]) cli_say(s, "%s is now %s (was %s)", key, cli_shown(texts[1]), cli_shown(texts[0]));
    free(texts[0]);
    free(texts[1]);
}

int train_run_tell_changes(train_run *run)
{
    const char *key;
    json_t *value, *was = json_object_get(run->was, "settings"), *now = train_settings_json(&run->t);
    if (!now) return cli_error(run->s, CLI_FAILED, "out of memory for the settings");
    json_object_foreach(now, key, value) tell_change(run->s, key, json_object_get(was, key), value);
    json_object_foreach(was, key, value) if (!json_object_get(now, key)) tell_change(run->s, key, value, NULL);
    json_decref(now);
    json_decref(run->was);
    run->was = NULL;
    return CLI_DONE;
}

/* Compares the data with the data of the checkpoint. Sets *same if they are equal, and *resplit if only the number of
 * sequences differs. */
static int compare(const train_run *run, const char *key, const mha_train_data *data, bool *same, bool *resplit)
{
    const json_t *was = json_object_get(run->was, key);
    json_t *now = data_json(data);
    if (!now) return cli_error(run->s, CLI_FAILED, "out of memory to compare the data");
    *same = json_equal(was, now);
    json_object_set(now, "sequences", json_object_get(was, "sequences"));
    *resplit = !*same && json_equal(was, now);
    json_decref(now);
    return CLI_DONE;
}

static int refuse_data(const train_run *run, bool resplit)
{
    const char *option = run->t.file.count ? "-f" : "--tokens";
    if (resplit)
        return cli_error(run->s, CLI_REFUSED,
                         "--length %lld changes how the data is split: pass %s again to continue anyway", run->t.length,
                         option);
    return cli_error(run->s, CLI_REFUSED, "data changed since the checkpoint: pass %s again to continue anyway",
                     option);
}

static int compare_data(const train_run *run)
{
    const cli_session *s = run->s;
    bool data, resplit, eval = true, eval_resplit;
    int code = compare(run, "data", run->data, &data, &resplit);
    if (code == CLI_DONE && run->t.eval.count && !run->t.names_eval)
        code = compare(run, "eval", run->held, &eval, &eval_resplit);
    if (code != CLI_DONE) return code;
    if (!eval)
        return cli_error(s, CLI_REFUSED,
                         "data of --eval changed since the checkpoint: pass --eval again to continue anyway");
    if (data) return CLI_DONE;
    if (!run->t.names_data) return refuse_data(run, resplit);
    cli_say(s, "data changed: results will differ from an uninterrupted run");
    return CLI_DONE;
}

static int compare_teacher(const train_run *run)
{
    const cli_session *s = run->s;
    const char *was = json_string_value(json_object_get(json_object_get(run->was, "teacher"), "digest"));
    if (!run->teacher || (was && strcmp(was, run->teacher_digest) == 0)) return CLI_DONE;
    if (!run->t.names_teacher)
        return cli_error(
            s, CLI_REFUSED,
            "the model in %s differs from the teacher of the checkpoint: pass --teacher again to continue anyway",
            cli_shown(run->t.teacher));
    if (was) cli_say(s, "teacher changed: results will differ from an uninterrupted run");
    return CLI_DONE;
}

/* The library refuses another type of moments too, with an error that names its own option instead of --moments. */
static int compare_moments(const train_run *run)
{
    const json_t *settings = json_object_get(run->was, "settings");
    const mha_dtype was = cli_dtype(json_string_value(json_object_get(settings, "moments"))),
                    now = cli_dtype(run->t.moments);
    if (was == now) return CLI_DONE;
    return cli_usage(run->s, "%s: --moments must be %s, the type of the moments in the checkpoint (got %s)",
                     cli_shown(run->s->options.out), mha_dtype_name(was), mha_dtype_name(now));
}

int train_run_compare(const train_run *run)
{
    int code = compare_moments(run);
    if (code == CLI_DONE) code = compare_data(run);
    return code == CLI_DONE ? compare_teacher(run) : code;
}

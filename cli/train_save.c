/* train_save.c - what is in the folder of a training beside the model: training.json, the settings with what the data
 * were, and training.jsonl, the log. They are written with the checkpoint, whole or not at all. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "train_run.h"

#define SETTINGS "training.json"
#define LOG "training.jsonl"

const char *train_run_path(const cli_session *s, const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", s->options.out, name);
    return path;
}

/* ---- writing ---- */

static char *settings_text(const train_run *run)
{
    char digest[17];
    snprintf(digest, sizeof digest, "%016" PRIx64, run->data.digest);
    json_t *settings = train_settings_json(&run->t);
    json_t *all = settings ? json_pack("{s:s, s:o, s:{s:I, s:I, s:s}}", "mha", mha_version(), "settings", settings,
                                       "data", "tokens", (json_int_t)run->data.tokens, "sequences",
                                       (json_int_t)run->data.sequences, "digest", digest)
                           : NULL;
    char *text = all ? json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(all);
    return text;
}

static int save(train_run *run, const char *settings, const char *log, size_t log_bytes)
{
    cli_session *s = run->s;
    mha_error error = {0};
    const mha_train_file files[] = {{.name = SETTINGS, .data = settings, .bytes = strlen(settings)},
                                    {.name = LOG, .data = log, .bytes = log_bytes}};
    const mha_trainer_save_options o = {.size = sizeof o,
                                        .overwrite = s->options.force || run->goes_on || run->log.folder >= 0,
                                        .files = files,
                                        .file_count = sizeof files / sizeof *files};
    if (mha_trainer_save(run->trainer, s->options.out, &o, &error) != MHA_OK) return cli_fail(s, &error);
    return train_log_follow(s, &run->log, train_run_path(s, LOG));
}

int train_run_save(train_run *run)
{
    char *settings = settings_text(run), *log = NULL;
    size_t bytes = 0;
    int code = settings ? train_log_text(run->s, &run->log, false, &log, &bytes)
                        : cli_error(run->s, CLI_FAILED, "out of memory for the settings");
    if (code == CLI_DONE) code = save(run, settings, log, bytes);
    free(settings);
    free(log);
    return code;
}

/* ---- reading ---- */

static json_t *load(const cli_session *s, const char *path)
{
    json_error_t wrong;
    json_t *all = json_load_file(path, JSON_REJECT_DUPLICATES, &wrong);
    if (!all) cli_error(s, CLI_REFUSED, "%s: %s", cli_shown(path), cli_shown(wrong.text));
    return all;
}

int train_run_load(train_run *run)
{
    const char *path = train_run_path(run->s, SETTINGS);
    json_t *all = load(run->s, path);
    if (!all) return CLI_REFUSED;
    const int code = train_settings_take(run->s, path, json_object_get(all, "settings"), &run->t);
    json_decref(all);
    return code;
}

int train_run_compare(const train_run *run)
{
    char digest[17];
    const char *path = train_run_path(run->s, SETTINGS);
    json_t *all = load(run->s, path);
    if (!all) return CLI_REFUSED;
    snprintf(digest, sizeof digest, "%016" PRIx64, run->data.digest);
    const char *was = json_string_value(json_object_get(json_object_get(all, "data"), "digest"));
    const bool same = was && strcmp(was, digest) == 0;
    json_decref(all);
    if (same) return CLI_DONE;
    if (train_given.file || train_given.tokens) {
        cli_say(run->s, "these are other data than before: the training is not that of an undisturbed run");
        return CLI_DONE;
    }
    return cli_error(run->s, CLI_REFUSED,
                     "the data are not those of the checkpoint any more: name them with %s to go on all the same",
                     run->t.file.count ? "-f" : "--tokens");
}

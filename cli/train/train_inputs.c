/* train_inputs.c - see train_inputs.h. Texts are read one at a time, and only their tokens are stored. */
#include "train/train_inputs.h"

#include "input/text_reader.h"
#include "output.h"
#include "session.h"
#include <string.h>
#include <sys/stat.h>

enum {
    PART_BYTES = 64 << 10
}; /* minimum bytes of the parts in which a whole file is read; each part consists of complete lines */

typedef struct reading {
    const cli_session *s;
    const char *path;
    mha_train_data *to;
} reading;

static int create(const cli_session *s, const mha_train_data_options *options, mha_train_data **data)
{
    mha_error error = {0};
    return mha_train_data_create(s->ctx, options, data, &error) == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

/* Reports an error in the file `name`. For an error that concerns all files, `name` is the first file. */
static int refuse(const cli_session *s, const char *name, const mha_error *error)
{
    if (error->status != MHA_ERR_FORMAT) return cli_refuse(s, error);
    return cli_error(s, CLI_REFUSED, "%s: %s", text_reader_name(name), error->message);
}

static int finish(const cli_session *s, const mha_train_data_options *options, const char *name, mha_train_data *data)
{
    mha_error error = {0};
    const mha_status status = mha_train_data_finish(data, &error);
    cli_progress_clear();
    if (status != MHA_OK) return refuse(s, name, &error);
    const mha_train_data_info *info = mha_train_data_describe(data);
    if (info->truncated)
        cli_say(s, "%lld of %lld texts are longer than --length %lld and are truncated", (long long)info->truncated,
                (long long)info->texts, (long long)options->length);
    if (info->length < options->length)
        cli_say(s, "%s: using --length %lld instead of %lld: the data has only %lld tokens", text_reader_name(name),
                (long long)info->length, (long long)options->length, (long long)info->tokens);
    return CLI_DONE;
}

/* ---- texts ---- */

static int add_text(void *user, const char *text, size_t bytes, int64_t line, bool last)
{
    const reading *r = user;
    mha_error error = {0};
    const mha_status status = mha_train_data_add_text(r->to, text, bytes, last, &error);
    if (status == MHA_OK) return CLI_DONE;
    if (status == MHA_ERR_FORMAT) /* the error is caused by the model, not by the text */
        return cli_error(r->s, CLI_REFUSED, "%s/%s", cli_shown(r->s->model), error.message);
    return cli_error(r->s, status == MHA_ERR_MEMORY ? CLI_FAILED : CLI_REFUSED, "%s: line %lld: %s",
                     text_reader_name(r->path), (long long)line, error.message);
}

static int64_t total_bytes(const train_list *paths)
{
    int64_t total = 0;
    for (int n = 0; n < paths->count; n++) {
        struct stat st;
        if (stat(paths->item[n], &st) == 0 && S_ISREG(st.st_mode)) total += st.st_size;
    }
    return total;
}

static int read_texts(const cli_session *s, const train_list *paths, const char *how, mha_train_data *data)
{
    reading r = {.s = s, .to = data};
    text_reader reader = {
        .session = s, .allow_nul = true, .part = PART_BYTES, .take = add_text, .user = &r, .total = total_bytes(paths)};
    int code = CLI_DONE;
    cli_documents_find(how, &reader.how);
    for (int n = 0; n < paths->count && code == CLI_DONE; n++) {
        r.path = paths->item[n];
        code = text_reader_read(&reader, r.path);
    }
    cli_progress_clear();
    if (code == CLI_DONE) text_reader_log_blank(&reader, paths->count == 1 ? paths->item[0] : NULL);
    return code;
}

int train_inputs_texts(const cli_session *s, const mha_train_data_options *options, const train_list *paths,
                       const char *how, mha_train_data **data)
{
    int code = create(s, options, data);
    if (code == CLI_DONE) code = read_texts(s, paths, how, *data);
    return code == CLI_DONE ? finish(s, options, paths->item[0], *data) : code;
}

/* ---- token files ---- */

static int add_file(const cli_session *s, const char *path, mha_train_data *data)
{
    mha_error error = {0};
    if (strcmp(path, "-") == 0) return cli_usage(s, "--tokens must name a token file (got \"-\")");
    cli_signals_reading(path);
    const mha_status status = mha_train_data_add_file(data, path, &error);
    cli_progress_clear();
    return status == MHA_OK ? CLI_DONE : cli_refuse(s, &error);
}

int train_inputs_ids(const cli_session *s, const mha_train_data_options *options, const train_list *paths,
                     mha_train_data **data)
{
    int code = create(s, options, data);
    for (int n = 0; n < paths->count && code == CLI_DONE; n++)
        code = add_file(s, paths->item[n], *data);
    return code == CLI_DONE ? finish(s, options, paths->item[0], *data) : code;
}

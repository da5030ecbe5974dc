/* train_log_files.c - appends each record of a log to its files. The files are written in place, because
 * records are appended to them. */
#include "base/ctx.h"
#include "base/size.h"
#include "io/files/folder_entries.h"
#include "io/files/input_file.h"
#include "train/log/train_log_struct.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- writing ---- */

/* Fails after a write error, and removes an incomplete line from the file. If that fails, mha_train_log_read and
 * mha_train_log_write_to remove the line. */
static mha_status fail_write(const mha__log_file *file, int number, mha_error *err)
{
    const int failed = ftruncate(file->fd, file->size);
    (void)failed;
    return mha__fail_errno(err, "cannot write the log", file->path, number);
}

static mha_status write_all(mha__log_file *file, const char *text, int64_t bytes, mha_error *err)
{
    for (int64_t done = 0; done < bytes;) {
        const ssize_t n = write(file->fd, text + done, (size_t)(bytes - done));
        if (n < 0 && errno != EINTR) return fail_write(file, errno, err);
        if (n > 0) done += n;
    }
    file->size += bytes;
    return MHA_OK;
}

static mha_status append_csv(const mha_train_log *log, mha__log_file *file, mha_error *err)
{
    mha__log_text text = {0};
    mha_status status = mha__log_csv(log, log->count - 1, false, &text, err);
    if (status == MHA_OK) status = write_all(file, text.text, text.bytes, err);
    mha__free(log->ctx, text.text);
    return status;
}

mha_status mha__log_append(mha_train_log *log, int64_t from, mha_error *err)
{
    for (int n = 0; n < MHA__LOG_FILES; n++) {
        mha__log_file *file = &log->file[n];
        if (file->fd < 0) continue;
        MHA__TRY(file->csv ? append_csv(log, file, err)
                           : write_all(file, log->lines.text + from, log->lines.bytes - from, err));
        file->filled = true;
    }
    return MHA_OK;
}

/* ---- opening ---- */

/* Sets *same to true if the file begins with the text, or the text begins with the content of the file. An empty text
 * matches only an empty file. */
static mha_status agrees(const mha__log_file *file, int64_t size, const mha__log_text *text, bool *same, mha_error *err)
{
    char part[4096];
    const int64_t both = mha__min64(size, text->bytes);
    *same = both > 0 || size == 0;
    for (int64_t done = 0; done < both && *same;) {
        const ssize_t n = pread(file->fd, part, (size_t)mha__min64(both - done, sizeof part), done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return mha__fail_errno(err, "cannot read the log", file->path, errno);
        *same = n > 0 && memcmp(part, text->text + done, (size_t)n) == 0;
        done += n;
    }
    return MHA_OK;
}

/* Replaces the content of the file with the text. If the file already contains the beginning of the text, only the
 * remaining bytes are written. */
static mha_status fill(mha__log_file *file, int64_t size, const mha__log_text *text, bool overwrite, mha_error *err)
{
    bool same;
    mha__quoted q;
    MHA__TRY(agrees(file, size, text, &same, err));
    if (!same && !overwrite)
        return mha__fail(err, MHA_ERR_ARG, "%s is not a log of this run; set overwrite to 1 to replace it",
                         mha__quote(&q, file->path, strlen(file->path)));
    const int64_t kept = same ? mha__min64(size, text->bytes) : 0;
    if (kept != size && ftruncate(file->fd, kept) != 0)
        return mha__fail_errno(err, "cannot truncate the log", file->path, errno);
    file->size = kept;
    return kept == text->bytes ? MHA_OK : write_all(file, text->text + kept, text->bytes - kept, err);
}

static mha_status open_file(mha__log_file *file, int64_t *size, mha_error *err)
{
    struct stat st;
    mha__quoted q;
    const int flags = O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    file->filled = false;
    file->fd = mha__open_at(AT_FDCWD, file->path, flags, 0);
    file->created = file->fd < 0 && errno == ENOENT;
    if (file->created) file->fd = mha__open_at(AT_FDCWD, file->path, flags | O_CREAT | O_EXCL, 0666);
    if (file->fd < 0 || fstat(file->fd, &st) != 0)
        return mha__fail_errno(err, "cannot open the log", file->path, errno);
    *size = st.st_size;
    if (S_ISREG(st.st_mode)) return MHA_OK;
    return mha__fail(err, MHA_ERR_IO, "%s: the log must be a regular file (got %s)",
                     mha__quote(&q, file->path, strlen(file->path)), mha__file_kind(st.st_mode));
}

static mha_status begin(const mha_train_log *log, mha__log_file *file, bool overwrite, mha_error *err)
{
    mha__log_text csv = {0};
    int64_t size;
    mha_status status = open_file(file, &size, err);
    if (status == MHA_OK && file->csv) status = mha__log_csv(log, 0, true, &csv, err);
    if (status == MHA_OK) status = fill(file, size, file->csv ? &csv : &log->lines, overwrite, err);
    mha__free(log->ctx, csv.text);
    file->filled = status == MHA_OK && log->count > 0;
    return status;
}

void mha__log_close(mha__log_file *file)
{
    if (file->fd < 0) return;
    if (file->created && !file->filled && mha__entry_is(AT_FDCWD, file->path, file->fd)) unlink(file->path);
    close(file->fd);
    file->fd = -1;
}

/* Closes the entry of log->file with this path, if there is one, and returns an unused entry; NULL if all entries are
 * in use. */
static mha__log_file *find_file(mha_train_log *log, const char *path)
{
    mha__log_file *free = NULL;
    for (int n = 0; n < MHA__LOG_FILES; n++) {
        mha__log_file *file = &log->file[n];
        if (file->fd >= 0 && strcmp(file->path, path) == 0) mha__log_close(file);
        if (file->fd < 0) free = file;
    }
    return free;
}

mha_status mha_train_log_write_to(mha_train_log *log, const char *path, int overwrite, mha_error *err)
{
    if (!log || !path)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_log_write_to: %s must not be NULL", log ? "path" : "log");
    mha__log_file *file = find_file(log, path);
    if (!file)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_log_write_to: log must have at most %d files", MHA__LOG_FILES);
    const size_t bytes = strlen(path) + 1;
    if (bytes > sizeof file->path) return mha__fail_errno(err, "cannot open the log", path, ENAMETOOLONG);
    memcpy(file->path, path, bytes);
    file->csv = mha__name_ends(path, ".csv");
    const mha_status status = begin(log, file, overwrite != 0, err);
    if (status != MHA_OK) mha__log_close(file);
    return status;
}

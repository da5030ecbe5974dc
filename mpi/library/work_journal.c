/* work_journal.c - the file in which a rank stores the results of its steps. */
#include "library/work_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct header {
    char format[16];            /* "mha.journal.1" */
    uint64_t name, model, data; /* digests of the strings in mha_work_info */
    int64_t steps, values;
} header;

/* Header of a record, before its steps and sums. */
typedef struct prefix {
    uint64_t bytes, digest;
    int64_t count;
} prefix;

uint64_t mha__digest(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t n = 0; n < bytes; n++)
        h = (h ^ p[n]) * UINT64_C(1099511628211);
    return h;
}

bool mha__journal_name(const char *state, int rank, char *path, size_t capacity)
{
    const int length = snprintf(path, capacity, "%s.%d", state, rank);
    return length > 0 && (size_t)length < capacity;
}

/* ---- input and output ---- */

static mha_status fail_io(const mha__journal *j, const char *verb, mha_error *err)
{
    return mha__cluster_fail(j->cluster, err, MHA_ERR_IO, "%s: cannot be %s: %s", j->path, verb, strerror(errno));
}

/* Reads exactly `bytes` bytes. Returns false at the end of the file, or after an error, which sets *failed. */
static bool read_all(const mha__journal *j, void *to, size_t bytes, bool *failed)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = read(j->fd, (char *)to + at, bytes - at);
        if (n < 0 && errno == EINTR) continue;
        *failed = n < 0;
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

static bool write_all(const mha__journal *j, const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = write(j->fd, (const char *)from + at, bytes - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        at += (size_t)n;
    }
    return true;
}

/* ---- the header ---- */

static uint64_t of_text(const char *text)
{
    return mha__digest(MHA__DIGEST_START, text, strlen(text));
}

static header header_of(const mha_work_info *info)
{
    return (header){.format = "mha.journal.1",
                    .name = of_text(info->name),
                    .model = of_text(info->model),
                    .data = of_text(info->data),
                    .steps = info->steps,
                    .values = info->values};
}

static mha_status check_header(const mha__journal *j, const header *mine, const header *theirs, mha_error *err)
{
    const char *differs = NULL;
    if (memcmp(mine->format, theirs->format, sizeof mine->format) != 0)
        return mha__cluster_fail(j->cluster, err, MHA_ERR_ARG, "%s: file must be a journal of shared work", j->path);
    if (mine->model != theirs->model) differs = "another model (or on another ISA)";
    if (mine->data != theirs->data || mine->steps != theirs->steps || mine->values != theirs->values)
        differs = "other data";
    if (mine->name != theirs->name) differs = "other options";
    if (!differs) return MHA_OK;
    return mha__cluster_fail(j->cluster, err, MHA_ERR_ARG,
                             "%s: journal must belong to a run with the same model, data and options (got %s)", j->path,
                             differs);
}

/* Reads the header; writes it if the file is empty or ends inside the header. */
static mha_status open_header(const mha__journal *j, const mha_work_info *info, bool append, mha_error *err)
{
    const header mine = header_of(info);
    header theirs;
    bool failed = false;
    if (read_all(j, &theirs, sizeof theirs, &failed)) return check_header(j, &mine, &theirs, err);
    if (failed) return fail_io(j, "read", err);
    if (!append) return MHA_OK;
    if (lseek(j->fd, 0, SEEK_SET) != 0 || ftruncate(j->fd, 0) != 0 || !write_all(j, &mine, sizeof mine) ||
        fsync(j->fd) != 0)
        return fail_io(j, "written", err);
    return MHA_OK;
}

/* ---- records ---- */

/* Returns the size of a record of `count` steps without its prefix [bytes]; 0 if `count` is invalid. */
static uint64_t record_bytes(const mha_work_info *info, int64_t count)
{
    if (count < 1 || count > info->steps) return 0;
    return ((uint64_t)count + (uint64_t)info->values) * sizeof(int64_t);
}

/* Reads the next record into `payload`, which has space for all steps; returns false if the record is incomplete or
 * damaged. */
static bool read_record(const mha__journal *j, const mha_work_info *info, int64_t *payload, prefix *p, bool *failed)
{
    if (!read_all(j, p, sizeof *p, failed) || p->bytes == 0 || p->bytes != record_bytes(info, p->count)) return false;
    if (!read_all(j, payload, (size_t)p->bytes, failed)) return false;
    if (mha__digest(MHA__DIGEST_START, payload, (size_t)p->bytes) != p->digest) return false;
    for (int64_t n = 0; n < p->count; n++)
        if (payload[n] < 0 || payload[n] >= info->steps) return false;
    return true;
}

/* Reads all valid records; *end receives the offset after the last one. */
static mha_status read_records(const mha__journal *j, const mha_work_info *info, int64_t *payload, int64_t *sums,
                               int64_t *steps, off_t *end, mha_error *err)
{
    prefix p;
    bool failed = false;
    *end = lseek(j->fd, 0, SEEK_CUR);
    while (*end >= 0 && read_record(j, info, payload, &p, &failed)) {
        for (int64_t n = 0; n < p.count; n++)
            steps[payload[n]]++;
        for (int64_t n = 0; n < info->values; n++)
            sums[n] = (int64_t)((uint64_t)sums[n] + (uint64_t)payload[p.count + n]);
        *end = lseek(j->fd, 0, SEEK_CUR);
    }
    return failed || *end < 0 ? fail_io(j, "read", err) : MHA_OK;
}

static mha_status read_open(const mha__journal *j, const mha_work_info *info, bool append, int64_t *sums,
                            int64_t *steps, mha_error *err)
{
    off_t end;
    MHA__TRY(open_header(j, info, append, err));
    const size_t bytes = (size_t)record_bytes(info, info->steps);
    int64_t *payload = malloc(bytes);
    if (!payload) return mha__cluster_no_memory(j->cluster, err, bytes, "a record of a journal");
    mha_status status = read_records(j, info, payload, sums, steps, &end, err);
    free(payload);
    if (status == MHA_OK && append && (ftruncate(j->fd, end) != 0 || lseek(j->fd, end, SEEK_SET) != end))
        status = fail_io(j, "truncated to its last valid record", err);
    return status;
}

/* ---- public functions ---- */

/* Locks the journal, because only one process may append at a time. Closing the file releases the lock. */
static mha_status lock(const mha__journal *j, mha_error *err)
{
    const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(j->fd, F_SETLK, &whole) == 0) return MHA_OK;
    if (errno != EACCES && errno != EAGAIN) return fail_io(j, "locked", err);
    return mha__cluster_fail(j->cluster, err, MHA_ERR_ARG, "%s: journal must not be in use by another run", j->path);
}

mha_status mha__journal_read(mha__journal *journal, const mha_cluster *cluster, const char *path,
                             const mha_work_info *info, bool append, int64_t *sums, int64_t *steps, mha_error *err)
{
    struct stat about;
    *journal = (mha__journal){.cluster = cluster, .fd = -1};
    snprintf(journal->path, sizeof journal->path, "%s", path);
    const int flags = append ? O_RDWR | O_CREAT : O_RDONLY;
    do /* O_NONBLOCK: opening a FIFO must not block */
        journal->fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666);
    while (journal->fd < 0 && errno == EINTR);
    if (journal->fd < 0) return fail_io(journal, "opened", err);
    mha_status status = MHA_OK;
    if (fstat(journal->fd, &about) != 0)
        status = fail_io(journal, "read", err);
    else if (!S_ISREG(about.st_mode))
        status = mha__cluster_fail(cluster, err, MHA_ERR_ARG, "%s: journal must be a regular file", path);
    if (status == MHA_OK && append) status = lock(journal, err);
    if (status == MHA_OK) status = read_open(journal, info, append, sums, steps, err);
    if (status != MHA_OK || !append) mha__journal_close(journal);
    return status;
}

mha_status mha__journal_append(mha__journal *journal, const mha_work_info *info, const int64_t *steps, int64_t count,
                               const int64_t *sums, mha_error *err)
{
    prefix p = {.bytes = record_bytes(info, count), .count = count};
    const size_t of_steps = (size_t)count * sizeof *steps, of_sums = (size_t)info->values * sizeof *sums;
    const off_t begin = lseek(journal->fd, 0, SEEK_CUR);
    p.digest = mha__digest(mha__digest(MHA__DIGEST_START, steps, of_steps), sums, of_sums);
    if (begin >= 0 && write_all(journal, &p, sizeof p) && write_all(journal, steps, of_steps) &&
        write_all(journal, sums, of_sums) && fsync(journal->fd) == 0)
        return MHA_OK;
    const mha_status status = fail_io(journal, "written", err);
    if (begin >= 0 && ftruncate(journal->fd, begin) == 0) lseek(journal->fd, begin, SEEK_SET);
    return status;
}

void mha__journal_close(mha__journal *journal)
{
    if (journal->fd >= 0) close(journal->fd);
    journal->fd = -1;
}

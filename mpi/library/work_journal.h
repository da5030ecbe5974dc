/* work_journal.h - the file in which a rank keeps the results of its steps: records that are appended, so that a killed
 * rank loses what it did since the last record, and nothing before.
 *
 * File: the header, then records. A record is three integers (its bytes after them, its digest, its number of steps),
 * the numbers of its steps, and the sums of their results. What follows the last good record is dropped. */
#ifndef MHA_MPI_WORK_JOURNAL_H
#define MHA_MPI_WORK_JOURNAL_H

#include "cluster_struct.h"
#include "mha/work.h"

typedef struct mha__journal {
    const mha_cluster *cluster;
    char path[4096];
    int fd; /* -1 = closed */
} mha__journal;

/* The name of the journal of `rank`; false if it does not fit. */
bool mha__journal_name(const char *state, int rank, char *path, size_t capacity);

/* Reads a journal: adds to `sums` [info->values], and 1 to steps[n] for each step n that is in it. With `append`,
 * creates the file unless it exists, and leaves it open for mha__journal_append after the last good record; else
 * closes it. Errors: MHA_ERR_ARG for the journal of another model, data or work, saying which; MHA_ERR_IO;
 * MHA_ERR_MEMORY. Each names the file. */
mha_status mha__journal_read(mha__journal *journal, const mha_cluster *cluster, const char *path,
                             const mha_work_info *info, bool append, int64_t *sums, int64_t *steps, mha_error *err);

/* Appends one record, which is on disk when the function returns. A failure leaves the file as it was. */
mha_status mha__journal_append(mha__journal *journal, const mha_work_info *info, const int64_t *steps, int64_t count,
                               const int64_t *sums, mha_error *err);
void mha__journal_close(mha__journal *journal);

/* FNV-1a of `bytes` bytes, chained to h. */
uint64_t mha__digest(uint64_t h, const void *data, size_t bytes);
#define MHA__DIGEST_START UINT64_C(14695981039346656037)

#endif

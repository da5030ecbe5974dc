/* work_journal.h - the file in which a rank stores the results of its steps. Records are only appended, so a killed
 * rank loses at most the work since its last record.
 *
 * File: the header, then records. A record consists of three integers (the length of the following data, its digest,
 * the step count), the step numbers, and the sums of their results. Data after the last valid record is discarded. */
#ifndef MHA_MPI_WORK_JOURNAL_H
#define MHA_MPI_WORK_JOURNAL_H

#include "library/cluster_struct.h"
#include "mha/work.h"

typedef struct mha__journal {
    const mha_cluster *cluster;
    char path[4096];
    int fd; /* -1 = closed */
} mha__journal;

/* Writes the file name of the journal of `rank` to `path`; returns false if the name does not fit. */
bool mha__journal_name(const char *state, int rank, char *path, size_t capacity);

/* Reads a journal: adds its results to `sums` [info->values], and 1 to steps[n] for each step n that it contains. With
 * `append`, creates a missing file and leaves it open for mha__journal_append, after the last valid record; otherwise
 * closes it. Errors name the file: MHA_ERR_ARG if the journal belongs to a run with another model, data or options;
 * MHA_ERR_IO; MHA_ERR_MEMORY. */
mha_status mha__journal_read(mha__journal *journal, const mha_cluster *cluster, const char *path,
                             const mha_work_info *info, bool append, int64_t *sums, int64_t *steps, mha_error *err);

/* Appends one record and syncs it to disk. On failure, the file is unchanged. */
mha_status mha__journal_append(mha__journal *journal, const mha_work_info *info, const int64_t *steps, int64_t count,
                               const int64_t *sums, mha_error *err);
void mha__journal_close(mha__journal *journal);

/* Returns the FNV-1a hash of `bytes` bytes, chained to h. */
uint64_t mha__digest(uint64_t h, const void *data, size_t bytes);
#define MHA__DIGEST_START UINT64_C(14695981039346656037)

#endif

/* cluster_fail.c - messages that begin with the rank that failed and its host. */
#include "library/cluster_struct.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Writes the message with its rank and host to *err; the arguments may point into *err. */
static void write_message(const mha_cluster *cluster, mha_error *err, mha_status status, const char *format,
                          va_list args)
{
    char message[sizeof err->message];
    int length = 0;
    if (cluster && cluster->hosts && cluster->hosts[cluster->info.rank][0])
        length =
            snprintf(message, sizeof message, "rank %d (%s): ", cluster->info.rank, cluster->hosts[cluster->info.rank]);
    vsnprintf(message + length, sizeof message - (size_t)length, format, args);
    memcpy(err->message, message, sizeof message);
    err->status = status;
}

mha_status mha__cluster_fail(const mha_cluster *cluster, mha_error *err, mha_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (err) write_message(cluster, err, status, format, args);
    va_end(args);
    return status;
}

void mha__cluster_keep_failure(mha_cluster *cluster, const mha_error *failure)
{
    if (!cluster->broken) cluster->failure = *failure;
    cluster->broken = true;
}

mha_status mha__cluster_break(mha_cluster *cluster, mha_error *err, const char *format, ...)
{
    mha_error failure;
    va_list args;
    va_start(args, format);
    write_message(cluster, &failure, MHA_ERR_IO, format, args);
    va_end(args);
    mha__cluster_keep_failure(cluster, &failure);
    if (err) *err = failure;
    return MHA_ERR_IO;
}

mha_status mha__cluster_no_memory(const mha_cluster *cluster, mha_error *err, size_t bytes, const char *what)
{
    return mha__cluster_fail(cluster, err, MHA_ERR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}

mha_status mha__cluster_read(const mha_cluster *cluster, void *own, size_t own_size, const void *given,
                             const char *name, mha_error *err)
{
    mha_error why = {0};
    const mha_status status = mha_struct_read(own, own_size, given, name, &why);
    return status == MHA_OK ? MHA_OK : mha__cluster_fail(cluster, err, status, "%s", why.message);
}

mha_status mha__cluster_check(mha_cluster *cluster, int result, const char *call, mha_error *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (result == MPI_SUCCESS) return MHA_OK;
    if (MPI_Error_string(result, text, &length) != MPI_SUCCESS) snprintf(text, sizeof text, "MPI error %d", result);
    return mha__cluster_break(cluster, err, "%s failed: %s", call, text);
}

double mha__cluster_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

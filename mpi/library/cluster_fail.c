/* cluster_fail.c - messages that begin with the rank that failed and its host. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "library/cluster_struct.h"

mha_status mha__cluster_fail(const mha_cluster *cluster, mha_error *err, mha_status status, const char *format, ...)
{
    if (!err) return status;
    char message[sizeof err->message]; /* the arguments may point into err */
    int length = 0;
    if (cluster && cluster->hosts && cluster->hosts[cluster->info.rank][0])
        length =
            snprintf(message, sizeof message, "rank %d (%s): ", cluster->info.rank, cluster->hosts[cluster->info.rank]);
    va_list args;
    va_start(args, format);
    vsnprintf(message + length, sizeof message - (size_t)length, format, args);
    va_end(args);
    memcpy(err->message, message, sizeof message);
    err->status = status;
    return status;
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
    cluster->broken = true;
    if (MPI_Error_string(result, text, &length) != MPI_SUCCESS) snprintf(text, sizeof text, "MPI error %d", result);
    return mha__cluster_fail(cluster, err, MHA_ERR_IO, "%s failed: %s", call, text);
}

double mha__cluster_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

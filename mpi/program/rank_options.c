/* rank_options.c - reads the options of mha-mpi itself. */
#include "program/rank_options.h"

#include "mha/model_ranks.h"
#include "output.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS_MAX = 1000000 };

bool rank_options_whole(const char *option, const char *text, long from, long to, long *value)
{
    char *end = NULL;
    errno = 0;
    *value = text && *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
    if (end && *end == 0 && errno == 0 && *value >= from && *value <= to) return true;
    fprintf(stderr, "mha-mpi: %s must be a whole number from %ld to %ld (got \"%s\")\n", option, from, to,
            text ? cli_shown(text) : "");
    return false;
}

static int read_attention(const char *text, rank_options *options)
{
    static const char *const names[] = {
        [MHA_CLUSTER_RING] = "ring", [MHA_CLUSTER_TREE] = "tree", [MHA_CLUSTER_ORDERED] = "ordered"};
    for (int mode = 0; text && mode <= MHA_CLUSTER_ORDERED; mode++)
        if (strcmp(text, names[mode]) == 0) return options->attention = (mha_cluster_mode)mode, 2;
    fprintf(stderr, "mha-mpi: --attention must be one of tree, ordered, ring (got \"%s\")\n",
            text ? cli_shown(text) : "");
    return -1;
}

static int read_tp(const char *text, rank_options *options)
{
    long ranks;
    if (!rank_options_whole("--tp", text, 1, MHA_RANK_GROUPS, &ranks)) return -1;
    return options->tp = (int)ranks, 2;
}

int rank_options_read_one(int left, char **argv, rank_options *options)
{
    long seconds;
    const bool timeout = left > 0 && strcmp(argv[0], "--timeout") == 0;
    if (left > 0 && strcmp(argv[0], "--mixed-isa") == 0) return options->mixed_isa = true, 1;
    if (left > 0 && strcmp(argv[0], "--attention") == 0) return read_attention(left > 1 ? argv[1] : NULL, options);
    if (left > 0 && strcmp(argv[0], "--tp") == 0) return read_tp(left > 1 ? argv[1] : NULL, options);
    if (!timeout && (left < 1 || strcmp(argv[0], "--record") != 0)) return 0;
    if (!rank_options_whole(argv[0], left > 1 ? argv[1] : NULL, 1, SECONDS_MAX, &seconds)) return -1;
    *(timeout ? &options->timeout : &options->record_pause) = (double)seconds;
    return 2;
}

int rank_options_read(int argc, char **argv, rank_options *options)
{
    int n = 1;
    options->attention = MHA_CLUSTER_TREE;
    for (int words; (words = rank_options_read_one(argc - n, argv + n, options)) != 0; n += words)
        if (words < 0) return -1;
    return n - 1;
}

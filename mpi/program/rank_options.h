/* rank_options.h - options of mha-mpi itself, given before the command. */
#ifndef MPI_RANK_OPTIONS_H
#define MPI_RANK_OPTIONS_H

#include "mha/cluster.h"
#include <stdbool.h>

typedef struct rank_options {
    double timeout, record_pause; /* [s]; 0 = the default of mha/cluster.h */
    bool mixed_isa;
    mha_cluster_mode attention; /* for texts distributed over ranks; the default is tree */
    int tp;                     /* ranks among which the weights of a model are divided; 0 = not divided */
} rank_options;

/* Reads the option at argv[0]: "--timeout S", "--record S", "--attention MODE", "--tp N" or "--mixed-isa".
 * Returns its number of arguments including the name, 0 if argv[0] is none of these or `left` is 0, or -1 after
 * printing an error. */
int rank_options_read_one(int left, char **argv, rank_options *options);
/* Reads all options from argv[1] on. Returns the number of arguments read, or -1 after printing an error. */
int rank_options_read(int argc, char **argv, rank_options *options);

/* Reads a whole number from `from` to `to`; returns false after printing an error that names `option`. */
bool rank_options_whole(const char *option, const char *text, long from, long to, long *value);

#endif

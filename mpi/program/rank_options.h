/* rank_options.h - options of mha-mpi itself, which stand before the command. */
#ifndef MPI_RANK_OPTIONS_H
#define MPI_RANK_OPTIONS_H

#include <stdbool.h>

typedef struct rank_options {
    double timeout; /* [s]; 0 = the default of mha/cluster.h */
    bool mixed_isa;
} rank_options;

/* Reads "--timeout S" and "--mixed-isa" from argv[1] on. Returns the number of words read, or -1 after a message. */
int rank_options_read(int argc, char **argv, rank_options *options);

/* Reads a whole number from `from` to `to`; false after a message that names `option`. */
bool rank_options_whole(const char *option, const char *text, long from, long to, long *value);

#endif

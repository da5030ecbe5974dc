/* rank_options.h - options of mha-mpi itself, which stand before the command. */
#ifndef MPI_RANK_OPTIONS_H
#define MPI_RANK_OPTIONS_H

#include <stdbool.h>

typedef struct rank_options {
    double timeout, record_pause; /* [s]; 0 = the default of mha/cluster.h */
    bool mixed_isa;
} rank_options;

/* Reads the option that argv[0] is: "--timeout S", "--record S" or "--mixed-isa". Returns the number of its words, 0 if
 * it is none of these or left is 0, or -1 after a message. */
int rank_options_read_one(int left, char **argv, rank_options *options);
/* Reads all of them from argv[1] on. Returns the number of words read, or -1 after a message. */
int rank_options_read(int argc, char **argv, rank_options *options);

/* Reads a whole number from `from` to `to`; false after a message that names `option`. */
bool rank_options_whole(const char *option, const char *text, long from, long to, long *value);

#endif

/* rank_options.c - see rank_options.h. */
#include "rank_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

enum { MOST_SECONDS = 1000000 };

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

int rank_options_read(int argc, char **argv, rank_options *options)
{
    int n = 1;
    for (; n < argc && argv[n][0] == '-'; n++) {
        long seconds;
        if (strcmp(argv[n], "--mixed-isa") == 0) {
            options->mixed_isa = true;
        } else if (strcmp(argv[n], "--timeout") == 0) {
            if (!rank_options_whole("--timeout", ++n < argc ? argv[n] : NULL, 1, MOST_SECONDS, &seconds)) return -1;
            options->timeout = (double)seconds;
        } else {
            break; /* --help and --version are commands */
        }
    }
    return n - 1;
}

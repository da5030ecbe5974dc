/* random_cases.c - implements random_cases.h. */
#include "support/random_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t number_after(int argc, char **argv, const char *option, uint64_t otherwise)
{
    for (int n = 1; n + 1 < argc; n++)
        if (strcmp(argv[n], option) == 0) return strtoull(argv[n + 1], NULL, 10);
    return otherwise;
}

cases cases_read(int argc, char **argv, cases given)
{
    cases c = {.seed = number_after(argc, argv, "--seed", given.seed),
               .first = number_after(argc, argv, "--case", UINT64_MAX),
               .end = number_after(argc, argv, "--cases", given.end)};
    if (c.first == UINT64_MAX)
        c.first = 0;
    else
        c.end = c.first + 1;
    printf("seed %llu\n", (unsigned long long)c.seed);
    return c;
}

/* random_cases.h - the command line of tests over random cases: a seed and how many, or one of them again. */
#ifndef TEST_CASES_H
#define TEST_CASES_H

#include <stdint.h>

typedef struct cases {
    uint64_t seed;
    uint64_t first, end; /* numbers of the cases: first .. end - 1 */
} cases;

/* `given` (a seed, and cases from 0 on), changed by --seed S, --cases N and --case K. Prints the seed. */
cases cases_read(int argc, char **argv, cases given);

#endif

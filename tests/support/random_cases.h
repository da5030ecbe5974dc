/* random_cases.h - the command line of tests with random cases: a seed and the number of cases, or one case to
 * repeat. */
#ifndef TEST_CASES_H
#define TEST_CASES_H

#include <stdint.h>

typedef struct cases {
    uint64_t seed;
    uint64_t first, end; /* case numbers: first .. end - 1 */
} cases;

/* Returns `given` (a seed and a range of cases) with the changes of --seed S, --cases N and --case K. Prints the
 * seed. */
cases cases_read(int argc, char **argv, cases given);

#endif

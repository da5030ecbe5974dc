/* random_cases.h - reads the command line of a test with random cases: the seed and the number of cases, or one case to
 * repeat. */
#ifndef TEST_CASES_H
#define TEST_CASES_H

#include <stdint.h>

typedef struct cases {
    uint64_t seed;
    uint64_t first, end; /* case numbers: first .. end - 1 */
} cases;

/* Returns the seed and the range of cases: `given`, as modified by --seed S, --cases N and --case K. Prints the seed.
 */
cases cases_read(int argc, char **argv, cases given);

#endif

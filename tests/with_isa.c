/* with_isa.c - runs a test under an ISA cap: with_isa ISA PROGRAM [ARGUMENT...]
 *
 * Sets MHA_ISA and executes PROGRAM. If this CPU lacks the ISA, exits with status 77 (skipped) and prints the reason.
 */
#include "mha/ctx.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ISAS_MAX = 16, SKIPPED = 77, MISUSE = 2 };

static int cpu_has(const char *isa)
{
    const char *names[ISAS_MAX];
    int count = mha_isa_list(names, ISAS_MAX);
    for (int i = 0; i < count && i < ISAS_MAX; i++)
        if (strcmp(names[i], isa) == 0) return 1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3) return MISUSE;
    if (!cpu_has(argv[1])) {
        printf("skipped: this CPU does not support %s\n", argv[1]);
        return SKIPPED;
    }
    if (setenv("MHA_ISA", argv[1], 1) == 0) execv(argv[2], argv + 2);
    perror(argv[2]);
    return EXIT_FAILURE;
}

/* one_process.c - the program mha: one process. The ranks of mha-mpi begin in mpi/program. */
#include "command.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv, NULL);
}

/* one_process.c - main() of mha, which runs as one process. main() of mha-mpi is in mpi/program. */
#include "command.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv, NULL);
}

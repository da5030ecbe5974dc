/* launch.h - `mha-mpi launch`: runs mpirun with parameters that end the job if a host fails, and restarts failed
 * jobs. */
#ifndef MPI_LAUNCH_H
#define MPI_LAUNCH_H

/* Runs `mha-mpi launch`; argv[0] is "launch". Returns the exit code. */
int launch(int argc, char **argv);

#endif

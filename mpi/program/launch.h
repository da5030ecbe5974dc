/* launch.h - `mha-mpi launch`: mpirun with the parameters that make a dead host end the job, and a new start. */
#ifndef MPI_LAUNCH_H
#define MPI_LAUNCH_H

/* argv[0] is "launch". Returns the exit code. */
int launch(int argc, char **argv);

#endif

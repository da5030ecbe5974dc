/* mpi_watchdog.h - a time limit for MPI's own start and end, which wait for every rank without one. */
#ifndef MPI_WATCHDOG_H
#define MPI_WATCHDOG_H

/* From now on, until mpi_watchdog_stop, this process has `seconds` for a step of MPI, such as "start". After that it
 * prints that the step did not complete, and exits with `code`; mpirun then ends the other ranks. */
void mpi_watchdog_start(const char *step, double seconds, int code);
void mpi_watchdog_stop(void);

#endif

/* mpi_watchdog.h - a time limit for starting and ending MPI, which otherwise waits for every rank without limit. */
#ifndef MPI_WATCHDOG_H
#define MPI_WATCHDOG_H

/* Starts the watchdog. If mpi_watchdog_stop is not called within `seconds`, prints that the MPI step, such as "start",
 * did not complete, and exits with `code`; mpirun then ends the other ranks. */
void mpi_watchdog_start(const char *step, double seconds, int code);
void mpi_watchdog_stop(void);

#endif

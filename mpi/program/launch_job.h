/* launch_job.h - runs mpirun for `mha-mpi launch`. */
#ifndef MPI_LAUNCH_JOB_H
#define MPI_LAUNCH_JOB_H

/* Runs the command `word` (terminated by NULL), and again after a temporary failure, at most `retries` times. A
 * restarted job resumes from its state file or checkpoint, if the command writes one. Returns the exit code of the last
 * run, or 128 + n if signal n ended it. */
int launch_job(const char *const *word, long retries);

#endif

#!/bin/sh
# with_ranks.sh P PROGRAM [ARGUMENT...] - runs P ranks on this machine, with mpirun of Open MPI or with mpiexec of another
# MPI library. Waiting ranks of Open MPI yield their core; otherwise, four ranks on two cores would be four times slower.
set -eu
ranks=$1
shift
launcher=${MPIRUN:-mpirun}
case $("$launcher" --version 2>&1) in
*'Open MPI'*)
    # A job starts faster if it does not look for networks: the ranks use shared memory in any case.
    set -- --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl self,vader -np "$ranks" "$@"
    [ "$(id -u)" -ne 0 ] || set -- --allow-run-as-root "$@"
    ;;
*) set -- -n "$ranks" "$@" ;;
esac
exec "$(dirname "$0")/launcher.sh" "$launcher" "$@"

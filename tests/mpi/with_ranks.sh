#!/bin/sh
# with_ranks.sh - with_ranks.sh P PROGRAM [ARGUMENT...]: P ranks on this machine, with Open MPI's mpirun or another MPI's mpiexec.
# Ranks that share a core yield it while they wait; else four of them on two cores are four times slower.
set -eu
ranks=$1
shift
launcher=${MPIRUN:-mpirun}
case $("$launcher" --version 2>&1) in
*'Open MPI'*)
    set -- --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np "$ranks" "$@"
    [ "$(id -u)" -ne 0 ] || set -- --allow-run-as-root "$@"
    ;;
*) set -- -n "$ranks" "$@" ;;
esac
exec "$launcher" "$@"

# lib.sh - shell functions for the tests of mha-mpi, sourced by test_mpi_*.sh after tests/cli/lib.sh.
# shellcheck shell=sh disable=SC2034,SC2154 # the tests read these variables; tests/cli/lib.sh sets others
ranks=$here/tests/mpi/with_ranks.sh each=$here/tests/mpi/each_rank.sh
host=$(hostname)

# alike P COMMAND...: stdout and exit status of `mha-mpi COMMAND...` on P ranks must equal those of `mha COMMAND...`.
alike() {
    count=$1
    shift
    code=0
    "$MHA" "$@" >one 2>/dev/null </dev/null || code=$?
    expect $code "$ranks" "$count" "$MHA_MPI" "$@"
    same one out "$count ranks of $*"
}

# started COUNT: succeeds if COUNT ranks of each_rank.sh have written their process ids.
started() { [ "$(cat pid.* 2>/dev/null | wc -l)" -ge "$1" ]; }

# await JOB COMMAND...: waits until COMMAND succeeds. If JOB, a child process of this shell, ends first, reports a failure with the messages
# of the job, which are in the file `err`.
await() {
    job_awaited=$1
    shift
    until "$@"; do
        # COMMAND is run again, because it may have begun to succeed just before the job ended.
        kill -0 "$job_awaited" 2>/dev/null || { "$@" || fail "must succeed before the job ends: $* ($(cat err))" && return; }
        sleep 0.05
    done
}

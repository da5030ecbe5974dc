# lib.sh - shell functions for the tests of mha-mpi, sourced by test_mpi_*.sh after tests/cli/lib.sh.
# shellcheck shell=sh disable=SC2034,SC2154 # variables: read by the tests, and of tests/cli/lib.sh
ranks=$here/tests/mpi/with_ranks.sh each=$here/tests/mpi/each_rank.sh
host=$(hostname)

# alike P COMMAND...: stdout and exit status of P ranks must equal those of mha.
alike() {
    count=$1
    shift
    code=0
    "$MHA" "$@" >one 2>/dev/null </dev/null || code=$?
    expect $code "$ranks" "$count" "$MHA_MPI" "$@"
    same one out "$count ranks of $*"
}

# started COUNT: true if COUNT ranks of each_rank.sh have written their process numbers.
started() { [ "$(cat pid.* 2>/dev/null | wc -l)" -ge "$1" ]; }

# await JOB COMMAND...: waits until COMMAND succeeds. If the job, a child of this shell, ends before, it must not go on forever: prints its
# errors from `err`.
await() {
    job_awaited=$1
    shift
    until "$@"; do
        # The job may succeed between the two tests.
        kill -0 "$job_awaited" 2>/dev/null || { "$@" || fail "the job ended before: $* ($(cat err))" && return; }
        sleep 0.05
    done
}

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

# attempt COMMAND...: runs the command, and again if mpirun itself crashed or did not end: its exit status is then not that of the job. After a
# job that failed, mpirun of Open MPI 4.1 sometimes crashes or hangs in PMIx_server_finalize. Its backtrace, or else launcher.sh, then names
# this function, which only mpirun calls; the backtrace of a rank does not contain it.
attempt() {
    run_once "$@"
    for try in 2 3 4 5; do
        grep -q PMIx_server_finalize err || return 0
        echo "try $try, because mpirun crashed or did not end (exit status $status): $*" >&2
        run_once "$@"
    done
}

# gone: succeeds if the process of each file pid.* has ended. A zombie has ended; only its parent has not waited for it.
gone() {
    for file in pid.*; do
        if ps -o stat= -p "$(cat "$file")" | grep -qv '^Z'; then return 1; fi
    done
}

# await_gone WHAT LIMIT: the process of each file pid.* must end within LIMIT s, because a killed process ends only when it runs again.
await_gone() {
    last=$(($(date +%s) + $2))
    until gone; do
        [ "$(date +%s)" -le $last ] || { fail "$1: no process may remain" && return; }
        sleep 0.05
    done
}

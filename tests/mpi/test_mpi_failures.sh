# test_mpi_failures.sh - if a rank sends no data or an MPI call fails, the job must end with a message that names the
# rank and its host. $CLUSTER is the program of test_cluster.c.
# shellcheck shell=sh source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
# shellcheck source=tests/mpi/lib.sh
. "$here/tests/mpi/lib.sh"

expect 75 "$ranks" 2 "$CLUSTER" silent
has out "rank 0 ($host): sum: rank 1 ($host) sent no data for 1 s"

# If mpirun does not respond, the rank that aborts the job ends anyway. The test kills the rest of the job.
ended() { ! ps -o stat= -p "$1" | grep -qv '^Z'; }
MHA_MPI=$CLUSTER "$ranks" 2 "$each" stopped >/dev/null 2>&1 </dev/null &
job=$!
await $job started 2
mpirun=$(ps -o ppid= -p "$(cat pid.0)")
await $job ended "$(cat pid.0)"
kill -KILL "$mpirun" "$(cat pid.1)"
wait $job || :

# Call 1, 2, ... of rank 1 fails, until a run has fewer calls and succeeds.
call=1
while [ $call -le 100 ] && [ "$failures" = 0 ]; do
    attempt "$ranks" 2 "$CLUSTER" fail $call
    [ "$status" -ne 0 ] || break
    [ "$status" -eq 75 ] || fail "call $call failed: exit status must be 75 (got $status)"
    grep -Eq "rank 1 \($host\): MPI_(Isend|Irecv|Testsome) failed: " out || fail "the message must name rank 1 and the failed MPI call (call $call): $(cat out)"
    call=$((call + 1))
done
if [ $call -lt 6 ] || [ $call -gt 100 ]; then fail "the number of calls must be from 6 to 100 (got $call)"; fi

# Failures of the calls of a training run (test_cluster_train.c).
trains=$(dirname "$CLUSTER")/test_cluster_train
expect 75 "$ranks" 2 "$trains" silent
has out "rank 0 ($host): sum of gradients: a rank sent no data for 1 s"
for call in 1 2 3 4 5; do
    expect 75 "$ranks" 2 "$trains" fail $call
    grep -Eq "rank 1 \($host\): MPI_(Isend|Irecv|Iallreduce) failed: " out || fail "the message must name rank 1 and the failed MPI call (call $call): $(cat out)"
done
expect 0 "$ranks" 2 "$trains" fail 6
finish

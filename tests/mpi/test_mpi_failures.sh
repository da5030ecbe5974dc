# test_mpi_failures.sh - a rank that is silent and MPI calls that fail end the job, with a message that names rank and host. The
# program is test_cluster.c, in $CLUSTER.
# shellcheck shell=sh source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
ranks=$here/tests/mpi/with_ranks.sh
host=$(hostname)

begin=$(date +%s)
expect 75 "$ranks" 2 "$CLUSTER" silent
has out "rank 0 ($host): sum: rank 1 ($host) sent no data for 1 s"
[ $(($(date +%s) - begin)) -le 10 ] || fail "a silent rank was waited for more than 10 s"

# Every call of one rank in turn, until there are no more.
call=1
while [ $call -le 100 ] && [ "$failures" = 0 ]; do
    status=0
    "$ranks" 2 "$CLUSTER" fail $call >out 2>err || status=$?
    [ $status -ne 0 ] || break
    [ $status -eq 75 ] || fail "call $call failed: exit status $status, not 75"
    grep -Eq "rank 1 \($host\): MPI_(Isend|Irecv|Testsome) failed: " out || fail "call $call failed: $(cat out)"
    call=$((call + 1))
done
if [ $call -lt 6 ] || [ $call -gt 100 ]; then fail "$call calls failed in turn"; fi
finish

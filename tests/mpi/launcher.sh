#!/bin/sh
# launcher.sh MPIRUN [ARGUMENT...] - runs mpirun, and ends it if it does not end after its job. After a job that failed, mpirun of Open MPI
# 4.1 sometimes waits forever for its own thread in PMIx_server_finalize, or does not end a rank that is frozen. stderr then says so.
exec 3<&0 # a background command of sh has no stdin
exec 4>&2
"$@" <&3 3<&- 4>&- &
mpirun=$!

# hangs: succeeds if mpirun sleeps although one of its processes has ended: it has not waited for the process, or fewer processes run than
# before. All processes of a job end together.
most=0
hangs() {
    states=$(ps -o stat= --ppid $mpirun)
    running=$(echo "$states" | grep -c '^[^Z]')
    [ "$running" -le "$most" ] || most=$running
    if ! echo "$states" | grep -q '^Z' && [ "$running" -eq "$most" ]; then return 1; fi
    ps -o stat= -p $mpirun | grep -q '^S'
}
(
    seconds=0
    while sleep 1 4>&- && kill -0 $mpirun; do
        if hangs; then seconds=$((seconds + 1)); else seconds=0; fi
        [ $seconds -ge 10 ] || continue
        echo 'mpirun did not end after its job (PMIx_server_finalize)' >&4
        pkill -KILL -P $mpirun
        kill -ABRT $mpirun
    done
) >/dev/null 2>&1 </dev/null 3<&- &
watcher=$!

trap 'kill $mpirun' INT TERM
status=0
wait $mpirun || status=$?
kill $watcher 2>/dev/null
exit $status

#!/bin/sh
# launcher.sh MPIRUN [ARGUMENT...] - runs mpirun, and ends it if it does not end after its job. After a job that failed, mpirun of Open MPI
# 4.1 sometimes waits forever for its own thread in PMIx_server_finalize. stderr then names the function.
exec 3<&0 # a background command of sh has no stdin
exec 4>&2
"$@" <&3 3<&- 4>&- &
mpirun=$!

# hangs: succeeds if mpirun sleeps although all of its processes have ended.
hangs() { ps -o stat= -p $mpirun | grep -q '^S' && ps -o stat= --ppid $mpirun | awk '!/^Z/ { exit 1 }'; }
(
    seconds=0
    while sleep 1 4>&- && kill -0 $mpirun; do
        if hangs; then seconds=$((seconds + 1)); else seconds=0; fi
        [ $seconds -ge 10 ] || continue
        echo 'mpirun did not end after its job (PMIx_server_finalize)' >&4
        kill -ABRT $mpirun
    done
) >/dev/null 2>&1 </dev/null 3<&- &
watcher=$!

trap 'kill $mpirun' INT TERM
status=0
wait $mpirun || status=$?
kill $watcher 2>/dev/null
exit $status

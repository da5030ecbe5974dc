# test_mpi_hosts.sh - mha-mpi on several hosts, connected over TCP (hosts.sh), must write the same bytes as mha. If a host fails, an error
# must name it, and the run must resume on fewer hosts. Requires root and iproute2.
# shellcheck shell=sh source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
# shellcheck source=tests/mpi/hosts.sh
. "$here/tests/mpi/hosts.sh"
# shellcheck source=tests/mpi/lib.sh
. "$here/tests/mpi/lib.sh"
hosts_possible || skip "hosts in network namespaces, which require root, iproute2 (ip) and Open MPI"
trap 'hosts_down 4; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
hosts_up 4
gpt2=$data/models/gpt2-tiny
head -n 100 "$here/share/mha/texts/stories.txt" | cut -c 1-60 >texts.txt

# ---- output of mha-mpi and mha ----
while read -r count options; do
    # shellcheck disable=SC2086
    "$MHA" $options >one || fail "must succeed: mha $options"
    # shellcheck disable=SC2086
    expect 0 hosts_run "$count" "$MHA_MPI" $options
    same one out "$count hosts, $options"
done <<END
2 heads -q -m $gpt2 -f texts.txt --csv
4 heads -q -m $gpt2 -f texts.txt --by gate --json
3 heads -q -m $tiny -f texts.txt --by loo_mean --csv
END
"$MHA" report -q -m "$tiny" "one text" --data texts.txt --diversity --json -o page --force >one
mv page page.one
expect 0 hosts_run 4 "$MHA_MPI" report -q -m "$tiny" "one text" --data texts.txt --diversity --json -o page
same one out "diversity"
same page.one page "the page"
"$MHA" prune -q -m "$gpt2" -f texts.txt --ratio 0.5 -o model >one
mv model one.model
expect 0 hosts_run 3 "$MHA_MPI" prune -q -m "$gpt2" -f texts.txt --ratio 0.5 -o model
same one out "prune"
diff -r one.model model || fail "the pruned models must be identical on one host and on several hosts"

# ---- an error that names the host ----
mkdir folder.0 folder.1 folder.2
cp texts.txt folder.0
cp texts.txt folder.1
sed 3d texts.txt >folder.2/texts.txt
expect 2 hosts_run 3 "$each" heads -q -m "$gpt2" -f texts.txt --by gate
has err "rank 2 (h3): the data must be the same as on rank 0 (h1)"
rm -r folder.0 folder.1 folder.2

# ---- a host that is killed or disconnected, and resuming on fewer hosts ----
# shellcheck disable=SC2034 # counts
for copy in $(seq 20); do cat texts.txt; done >long.txt
score="heads -q -m builtin -f long.txt --by gate --csv"
# shellcheck disable=SC2086
"$MHA" $score >one

# recorded: succeeds if the journal of rank 1 has a record after its header of 56 bytes.
recorded() { [ "$(wc -c <"state.$event.gate.1")" -gt 56 ]; }

# await_record: waits until rank 1 has recorded scores, but at most 1 s.
await_record() {
    for _ in $(seq 20); do
        recorded && return
        sleep 0.05
    done
    return 1
}

# hold: starts the job and stops the rank of host 4 until another rank has recorded scores, as each rank does when no work is left. The job
# then cannot end before host 4 fails; mpirun waits forever for a host that fails while the job ends. While the job begins, the other ranks
# may wait for the stopped rank, so it runs for a moment each second. Fails if the job has ended.
hold() {
    rm -f pid.* "state.$event".*
    # shellcheck disable=SC2086
    hosts_run 4 "$each" --record 1 $score --state "state.$event" >out 2>err </dev/null &
    job=$!
    await "$job" [ -e "state.$event.gate.3" ]
    while kill -STOP "$(cat pid.3)" 2>/dev/null; do
        if await_record; then [ ! -s out ] && return; fi
        kill -CONT "$(cat pid.3)"
        sleep 0.05
    done
    return 1
}

for event in kill unplug; do
    tries=1
    until hold; do
        wait "$job" || fail "exit status of the job must be 0 ($(cat err))"
        same one out "a job that ended early"
        [ $tries -lt 5 ] || fail "$event: the job ended before host 4 could fail"
        finish # only if a check has failed
        tries=$((tries + 1))
        echo "try $tries, because the job ended before host 4 could fail"
    done
    host_$event 4
    # If host 4 is disconnected, the job ends 13 to 14 s later, when mpirun closes the connection (hosts.sh).
    status=0
    wait "$job" || status=$?
    if [ $status -eq 0 ] || [ -s out ]; then fail "$event: the job must fail without a result (got exit status $status)"; fi
    has err 10.99.0.4
    [ "$event" = kill ] || host_plug 4
    for host in 1 2 3 4; do host_kill $host; done
    # shellcheck disable=SC2086
    expect 0 hosts_run 3 "$MHA_MPI" $score --state "state.$event"
    same one out "3 hosts, resumed after $event"
done
finish

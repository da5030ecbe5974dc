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
    "$MHA" $options >one || fail "mha $options"
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
diff -r one.model model || fail "the pruned models differ"

# ---- an error that names the host ----
mkdir folder.0 folder.1 folder.2
cp texts.txt folder.0
cp texts.txt folder.1
sed 3d texts.txt >folder.2/texts.txt
expect 2 hosts_run 3 "$each" heads -q -m "$gpt2" -f texts.txt --by gate
has err "rank 2 (h3): the data must be the same as on rank 0 (h1)"
rm -r folder.0 folder.1 folder.2

# ---- a host that is killed or disconnected, and resuming on fewer hosts ----
# The text is so long that the host fails while the job runs: mpirun would wait for a host that fails while the job ends.
# shellcheck disable=SC2034 # counts
for copy in $(seq 40); do cat texts.txt; done >long.txt
score="heads -q -m builtin -f long.txt --by gate --csv"
# shellcheck disable=SC2086
"$MHA" $score >one
for event in kill unplug; do
    # shellcheck disable=SC2086
    hosts_run 4 "$MHA_MPI" --record 1 $score --state "state.$event" >out 2>err </dev/null &
    job=$!
    await "$job" [ -e "state.$event.gate.3" ]
    sleep 1
    begin=$(date +%s)
    "host_$event" 4
    status=0
    wait "$job" || status=$?
    [ $(($(date +%s) - begin)) -le 20 ] || fail "$event: the job must end within 20 s"
    if [ $status -eq 0 ]; then same one out "$event after the job had ended"; else [ ! -s out ] || fail "$event: a failed job must not print a result"; fi
    [ $status -eq 0 ] || has err 10.99.0.4
    [ "$event" = kill ] || host_plug 4
    for host in 1 2 3 4; do host_kill $host; done
    # shellcheck disable=SC2086
    expect 0 hosts_run 3 "$MHA_MPI" $score --state "state.$event"
    same one out "3 hosts, resumed after $event"
done
finish

# test_mpi_heads.sh - `mha-mpi heads` must print the same bytes as `mha heads` for any number of ranks, even if a rank is
# killed or frozen, a journal is truncated, or a resumed run has another number of ranks. If data differ on a rank, an
# error must name the rank and its host. With MHA_FAULTS=all, ranks are killed and frozen at 20 random times each.
# shellcheck shell=sh source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
# shellcheck source=tests/mpi/lib.sh
. "$here/tests/mpi/lib.sh"
rounds=1
[ "${MHA_FAULTS:-}" != all ] || rounds=20
head -n 100 "$here/share/mha/texts/stories.txt" >texts.txt

# ---- output of mha-mpi and mha ----
while read -r count form; do
    "$MHA" heads -m builtin -f texts.txt "$form" >one
    expect 0 "$ranks" "$count" "$MHA_MPI" heads -m builtin -f texts.txt "$form"
    same one out "$count ranks, $form"
done <<'END'
1 --csv
2 --json
3 --csv
4 --no-probe
END
"$MHA" heads -m "$tiny" "one text" --json --maps >one
expect 0 "$ranks" 3 "$MHA_MPI" heads -m "$tiny" "one text" --json --maps
same one out "maps"
"$MHA" heads -m "$tiny" -f texts.txt --csv >one
expect 0 "$ranks" 4 "$MHA_MPI" heads -m "$tiny" -f texts.txt --csv
same one out "an encoder"

# ---- a different model on one rank ----
mkdir folder.0 folder.1
cp -r "$tiny" folder.0/model
cp -r "$data/models/gpt2-tiny" folder.1/model
expect 2 "$ranks" 2 "$each" heads -m model "a cat"
has err "rank 1 ($host): the data must be the same as on rank 0 ($host)"
rm -r folder.1/model
cp -r "$tiny" folder.1/model
at=$(($(wc -c <folder.1/model/model.safetensors) - 101)) # a byte inside the last tensor
printf '\001' | dd of=folder.1/model/model.safetensors bs=1 seek=$at conv=notrunc 2>dd.log
expect 2 "$ranks" 2 "$each" heads -m model "a cat"
has err "rank 1 ($host): the model and the CPU instruction set must be the same as on rank 0 ($host)"
rm -r folder.1/model
expect 3 "$ranks" 2 "$each" heads -m model "a cat"
has err "mha-mpi heads: rank 1 ($host): model: a model must be"
[ ! -s out ] || fail "a failed job must not print a result"
rm -r folder.0 folder.1

# All ranks must use the newest ISA that every rank supports, and a message must name this ISA.
if [ "$("$MHA" --version | sed -n 's/^in use: \([^,]*\),.*/\1/p')" != scalar ]; then
    "$MHA" heads -m "$tiny" -f texts.txt --csv --isa scalar >one
    SCALAR=1 expect 0 "$ranks" 3 "$each" heads -m "$tiny" -f texts.txt --csv
    same one out "ranks of different ISAs"
    has err "the CPUs differ: all ranks use scalar, the newest ISA that rank 1 ($host) shares with the other ranks"
fi

# ---- a full disk while one rank writes its journal ----
mkdir small
if mount -t tmpfs -o size=16k mha-test small 2>mount.log; then
    trap 'umount "$work/small"; rm -rf "$work"' EXIT
    ln -s small/journal full.statistics.1
    expect 1 "$ranks" 2 "$MHA_MPI" heads -m builtin -f texts.txt --csv --state full
    has err "rank 1 ($host): full.statistics.1: cannot be written: No space left on device"
    [ ! -s out ] || fail "a failed job must not print a result"
    rm full.statistics.1
    "$MHA" heads -m builtin -f texts.txt --csv >one
    expect 0 "$ranks" 3 "$MHA_MPI" heads -m builtin -f texts.txt --csv --state full
    same one out "resumed after a full disk"
else
    echo "skipped: a full disk, which requires permission to mount a file system"
fi

# ---- killed and frozen ranks, and resuming with another number of ranks ----
# shellcheck disable=SC2034 # counts
for copy in 1 2 3 4 5 6 7 8 9 10 11 12; do cat texts.txt; done >long.txt
begin=$(date +%s)
"$MHA" heads -m builtin -f long.txt --csv >one
# The ranks that do not fail complete all remaining steps; on shared cores, this takes at most as long as one process.
limit=$((15 + 3 * ($(date +%s) - begin)))

# start COUNT STATE: starts a job of COUNT ranks in the background; returns when all ranks have written their process ids.
start() {
    rm -f pid.*
    "$ranks" "$1" "$each" --timeout 3 --record 1 heads -m builtin -f long.txt --csv --state "$2" >out 2>err </dev/null &
    job=$!
    await "$job" started "$1"
}

# ended WHAT: the job must fail within $limit s and leave no process, or succeed. A printed result must be the right one: a rank
# may be killed after rank 0 has printed it.
ended() {
    begin=$(date +%s)
    status=0
    wait "$job" || status=$?
    [ $(($(date +%s) - begin)) -le $limit ] || fail "$1: must end within $limit s"
    [ ! -s out ] || same one out "$1, exit status $status"
    [ $status -ne 0 ] || { [ -s out ] || fail "$1: must print the result"; return; }
    has err "$host"
    await_gone "$1" $limit
}

# The expected message if a rank is frozen before MPI starts. MPI itself would wait forever.
no_start="rank [02] \($host\): MPI did not start within 6 s: another rank does not respond"
FROZEN=1 start 3 state.start
ended "rank 1, frozen before MPI started"
grep -Eq "$no_start" err || fail "stderr must match: $no_start (got $(cat err))"

round=0
while [ $round -lt $rounds ]; do
    for signal in KILL STOP; do
        victim=$(((round + 1) % 3))
        delay=$(awk "BEGIN { srand($round * 2 + $(printf %d "'$signal")); print 0.4 + 1.6 * rand() }")
        start 3 "state.$round.$signal"
        sleep "$delay"
        kill -$signal "$(cat pid.$victim)" 2>/dev/null || :
        ended "rank $victim, $signal after $delay s"
        # An mpirun that hangs (launcher.sh) loses the messages of the ranks.
        [ $signal = KILL ] || [ ! -s err ] || grep -q PMIx_server_finalize err || grep -Eq "rank $victim \($host\) (sent|accepted) no data|$no_start" err ||
            fail "the message must name the frozen rank $victim (got $(cat err))"
        expect 0 "$ranks" $((1 + (round + 1) % 4)) "$MHA_MPI" heads -m builtin -f long.txt --csv --state "state.$round.$signal"
        same one out "resumed after $signal"
    done
    round=$((round + 1))
done
finish

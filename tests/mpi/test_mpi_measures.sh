# test_mpi_measures.sh - importance scores, diversity, pruning and regrouping by mha-mpi must have the same bytes as by mha for any number
# of ranks, even if a rank is killed and the run is resumed with another number of ranks. If data differ on a rank, an error must name the
# rank and its host. With MHA_FAULTS=all, ranks are killed at 20 random times.
# shellcheck shell=sh source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
# shellcheck source=tests/mpi/lib.sh
. "$here/tests/mpi/lib.sh"
gpt2=$data/models/gpt2-tiny
head -n 100 "$here/share/mha/texts/stories.txt" | cut -c 1-60 >texts.txt
paste texts.txt texts.txt >pairs.txt
rounds=1
[ "${MHA_FAULTS:-}" != all ] || rounds=20

# ---- every importance score, with 1 to 4 ranks ----
while read -r count model options; do
    # shellcheck disable=SC2086 # several options
    "$MHA" heads -q -m "$data/models/$model" $options --csv >one || fail "must succeed: mha heads -m $model $options"
    # shellcheck disable=SC2086
    expect 0 "$ranks" "$count" "$MHA_MPI" heads -q -m "$data/models/$model" $options --csv
    same one out "$count ranks, $model $options"
done <<'END'
1 gpt2-tiny -f texts.txt --by gate
2 gpt2-tiny -f texts.txt --by gate
3 gpt2-tiny -f texts.txt --by gate
4 gpt2-tiny -f texts.txt --by gate
2 gpt2-tiny -f texts.txt --by gate_batch --batch 48
3 gpt2-tiny -f texts.txt --by gate_layer_l2
4 gpt2-tiny -f texts.txt --by taylor_token --batch 7
3 gpt2-tiny -f texts.txt --by taylor_elem
2 gpt2-tiny -f texts.txt --by gradmag --batch 9
3 gpt2-tiny -f texts.txt --by gradmag
4 bert-tiny -f texts.txt --by jacobian
2 gpt2-tiny -f texts.txt --by jacobian_probe --probes 2
3 bert-tiny -f texts.txt --by loo
4 gpt2-tiny -f texts.txt --by loo_loss --batch 40
2 bert-tiny -f texts.txt --by loo_mean
3 gpt2-tiny -f texts.txt --by loo_mean_loss
4 gpt2-tiny -f texts.txt --by confidence
2 bert-tiny -f texts.txt --by confidence_nospecial
3 gpt2-tiny -f texts.txt --by ov_norm
3 bert-tiny -f pairs.txt --by gate --loss pairs --batch 11
2 bert-mlm-tiny -f texts.txt --by loo_loss --loss mlm
4 bert-tiny -f texts.txt --by loo --settle 0.9
END

# ---- reports with diversity ----
for count in 2 3; do
    "$MHA" report -q -m "$gpt2" "one text" "another text" --data texts.txt --by gate --diversity --json -o page --force >one
    mv page page.one
    expect 0 "$ranks" $count "$MHA_MPI" report -q -m "$gpt2" "one text" "another text" --data texts.txt --by gate --diversity --json -o page
    same one out "report, $count ranks"
    same page.one page "the page, $count ranks"
    rm page
done
"$MHA" report -q -m "$tiny" "one text" --data texts.txt --diversity --json --compare "$tiny" -o page >one
mv page page.one
expect 0 "$ranks" 4 "$MHA_MPI" report -q -m "$tiny" "one text" --data texts.txt --diversity --json --compare "$tiny" -o page
same one out "report of two models"
same page.one page "the page of two models"

# ---- models written by prune and regroup ----
while read -r count command; do
    rm -rf model one.model
    # shellcheck disable=SC2086
    "$MHA" $command -q -f texts.txt -o model >one || fail "must succeed: mha $command"
    mv model one.model
    # shellcheck disable=SC2086
    expect 0 "$ranks" "$count" "$MHA_MPI" $command -q -f texts.txt -o model
    same one out "$count ranks, $command"
    diff -r one.model model || fail "$count ranks must write the model that one process writes: $command"
done <<END
1 prune -m $gpt2 --ratio 0.25
2 prune -m $gpt2 --ratio 0.5 --fill
3 prune -m $tiny --ratio 0.25 --refit
4 prune -m $tiny --count 2 --by loo
3 prune -m $gpt2 --heads 0.1,1.0 --fill
2 regroup -m $tiny --kv-heads 2
3 regroup -m $gpt2 --kv-heads 1 --by gate
4 regroup -m $gpt2 --key-heads 2 --method closed --ridge 0
END
timeless() { sed 's/"tokens_per_second": \(\[[^]]*\]\|[^,}]*\)/"tokens_per_second": 0/g' "$1"; }
head -n 24 texts.txt >few.txt
"$MHA" prune -q -m "$gpt2" -f few.txt --search --max-loss-increase 0.01 --json >one
expect 0 "$ranks" 3 "$MHA_MPI" prune -q -m "$gpt2" -f few.txt --search --max-loss-increase 0.01 --json
timeless one >one.timeless
timeless out >out.timeless
same one.timeless out.timeless "a search"
expect 2 "$ranks" 3 "$MHA_MPI" prune -m "$gpt2" -f texts.txt --ratio 0.5 -o model
has err "model exists; --force replaces it"

# ---- different data on one rank ----
mkdir folder.0 folder.1
cp texts.txt folder.0
sed '37s/$/ x/' texts.txt >folder.1/texts.txt
for command in "heads --by gate" "prune --ratio 0.5 -o new" "report --diversity -o new" "regroup --kv-heads 1 -o new"; do
    # shellcheck disable=SC2086
    expect 2 "$ranks" 2 "$each" ${command%% *} -q -m "$gpt2" -f texts.txt ${command#* }
    has err "rank 1 ($host): the data must be the same as on rank 0 ($host)"
    if [ -s out ] || [ -e folder.0/new ]; then fail "$command: must write no result if the texts differ"; fi
done
rm -r folder.0 folder.1

# ---- a killed rank, and resuming with another number of ranks ----
# shellcheck disable=SC2034 # counts
for copy in 1 2 3 4 5 6 7 8; do cat texts.txt; done >long.txt
score="heads -q -m builtin -f long.txt --by gate --csv"
# shellcheck disable=SC2086
"$MHA" $score >one
round=0
while [ $round -lt $rounds ]; do
    rm -f pid.*
    # shellcheck disable=SC2086
    "$ranks" 3 "$each" --record 1 $score --state "state.$round" >out 2>err </dev/null &
    job=$!
    await "$job" [ -e "state.$round.gate.1" ] # the journal of the scores, which are measured after the statistics
    sleep "$(awk "BEGIN { srand($round); print 0.5 + 1.5 * rand() }")"
    kill -KILL "$(cat pid.$((round % 3)))" 2>/dev/null || :
    status=0
    wait "$job" || status=$?
    if [ $status -eq 0 ]; then same one out "ended before the kill"; else [ ! -s out ] || fail "a failed job must not print a result (got exit status $status)"; fi
    # shellcheck disable=SC2086
    expect 0 "$ranks" $((1 + (round + 1) % 4)) "$MHA_MPI" $score --state "state.$round"
    same one out "resumed after a kill"
    # One rank must read the complete result from the journals.
    # shellcheck disable=SC2086
    expect 0 "$ranks" 1 "$MHA_MPI" $score --state "state.$round"
    same one out "resumed after completion"
    round=$((round + 1))
done
finish

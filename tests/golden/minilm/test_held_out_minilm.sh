#!/bin/sh
# On 96 held-out sentences (heads/texts), all-MiniLM-L6-v2 without 24 of its 72 heads, and with shared key/value heads,
# must reach the quality stated in docs/heads.md. Also tests a search. Skipped if the weights are not installed.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
[ -d "$minilm" ] || skip "MiniLM is not installed (./run fetch minilm)"
choose=$data/heads/texts/choose.txt judge=$data/heads/texts/judge.txt

# bound COMPARISON COSINE WHAT: compares the mean cosine over the sentences, from the JSON in `out`.
bound() {
    at quality.texts 96
    at quality.held_out --test
    got=$("$JSON_AT" quality.mean_cosine <out) || fail 'the JSON must have the cosine'
    awk -v got="$got" -v want="$2" "BEGIN { exit !(got $1 want) }" || fail "$3: mean cosine must be $1 $2 (got $got)"
    echo "$3: $got"
}
prune() { "$MHA" prune -m "$minilm" -f "$choose" --test "$judge" --json "$@"; }
regroup() { "$MHA" regroup -m "$minilm" -f "$choose" --test "$judge" --json "$@"; }

expect 0 prune --count 24 -o bare
at heads.0 72
at heads.1 48
bound '>=' 0.963 'selected jointly'
expect 0 prune --keep bare/config.json --refit -o refitted # keeps the selected heads
at heads.1 48
bound '>=' 0.974 'and refitted'
expect 0 prune --ratio 0.3 --per-layer --by jacobian_probe -o each
at heads.1 48
bound '>=' 0.88 'selection by the Jacobian score, with equal counts per layer' # random heads: 0.80 to 0.84
bound '<' 0.957 'equal counts per layer, compared with a selection from all layers'

# Trains two epochs on the sentences used for fitting, with the unpruned model as teacher.
expect 0 "$MHA" train -q --from refitted --teacher "$minilm" -f "$choose" --epochs 2 --rate 3e-5 -o repaired
expect 0 "$MHA" diff --json -m "$minilm" -m repaired -f "$judge"
at texts.texts 96
got=$("$JSON_AT" texts.mean_cosine <out) || fail 'the JSON must have the cosine'
awk -v got="$got" 'BEGIN { exit !(got >= 0.977) }' || fail "repaired: mean cosine must be >= 0.977 (got $got)"
echo "after distillation: $got"

expect 0 regroup --kv-heads 4 --published -o published
bound '>=' 0.8885 '4 key/value heads, published method'
expect 0 regroup --kv-heads 4 -o shared
bound '>=' 0.919 '4 key/value heads'
expect 0 regroup --key-heads 4 --published -o published_keys
bound '>=' 0.9865 '4 key heads, published method'
expect 0 regroup --key-heads 4 -o keys
bound '>=' 0.992 '4 key heads'
expect 0 regroup --kv-heads 4 --method mean -o mean
bound '<' 0.60 '4 key/value heads merged by the mean, for further training'

# Tests a search with a fast score on fewer sentences.
head -n 32 "$choose" >few
head -n 16 "$judge" >some
expect 0 "$MHA" prune -m "$minilm" --search --by jacobian_probe -f few --test some --max-loss-increase 0.05 -o curve.svg --json
at texts 16
at best.within true
last=$(($("$JSON_AT" curve.# <out) - 1))
at curve.$last.heads 72
at curve.0.heads 6
best=$("$JSON_AT" best.heads <out)
if [ "$best" -le 6 ] || [ "$best" -ge 72 ]; then fail "the search must keep 7 to 71 heads (got $best)"; fi
faster=$(awk -v a="$("$JSON_AT" curve.0.tokens_per_second <out)" -v b="$("$JSON_AT" curve.$last.tokens_per_second <out)" 'BEGIN { print a / b }')
echo "largest pruning within 0.05: $best of 72 heads remain; 6 heads run at $faster times the speed of 72"
has curve.svg '<svg'
expect 0 "$MHA" prune -m "$minilm" --search --per-layer --floor 9 --by jacobian_probe -f few --test some --json
at curve.# 4
at curve.0.heads 54
finish

#!/bin/sh
# test_cli_bench.sh - tests `mha bench attention`: results must exist and be positive, and invalid rows and types must be
# rejected. Speed is not tested.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

# positive PATH: the JSON in `out` must have a positive number at the path.
positive() {
    got=$("$JSON_AT" "$1" <out) || fail "the JSON must have $1"
    awk -v x="$got" 'BEGIN { exit !(x + 0 > 0) }' || fail "$1 must be positive (got $got)"
}

expect 0 "$MHA" bench attention --rows small --seconds 0.01 --json -t 1
at rows.# 1
at rows.0.row small
at rows.0.dtype f32
at rows.0.threads 1
at rows.0.limit fma
for key in best_ms median_ms gflops gb_per_s limit_rate share calls; do
    positive "rows.0.$key"
done

# The reported limit for decoding one query must be memory reads.
expect 0 "$MHA" bench attention --rows small,decode --seconds 0.01 --json -t 2
at rows.# 2
at rows.1.limit read
positive rows.1.share

# Products of bf16 pairs can exceed the peak of f32 multiply-adds, so a fraction of this peak must not be printed for them.
expect 0 "$MHA" bench attention --rows prefill,decode --seconds 0.01 --dtype bf16 --json -t 1
case "$("$JSON_AT" rows.0.isa <out)" in
amx | avx512bf16)
    at rows.0.limit pairs
    at rows.0.share null
    at rows.1.limit read
    ;;
*) at rows.0.limit fma ;;
esac

expect 0 "$MHA" bench attention --rows small --seconds 0.01 --dtype all --csv
[ "$(wc -l <out)" = 4 ] || fail "the output must be a heading and three rows: $(cat out)"
has out 'small,8,2,2,16,16,8,0,bf16'
expect 0 "$MHA" bench attention --rows small --seconds 0.01
has out '8x2/2x16x16x8'

refused 2 "$MHA" bench
refused 2 "$MHA" bench tensors
refused 2 "$MHA" bench attention --rows smal
refused 2 "$MHA" bench attention --rows small,
refused 2 "$MHA" bench attention --dtype f64
refused 2 "$MHA" bench attention --seconds 0
finish

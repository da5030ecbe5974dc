#!/bin/sh
# test_cli_plan.sh - tests `mha plan`: published parameter counts and sizes in all three output formats, measured times,
# and invalid options.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

# ---- table of head layouts: number of rows, first and last row ----
expect 0 "$MHA" plan --d-model 768 --layers 12 --vocab 50257 --seq 1024 --json
at rows.# 29
at rows.0.heads 8
at rows.0.head_dim 96
at rows.0.kv_groups 8
at rows.0.kv_heads 1
at rows.0.parameters 1327104
at rows.0.reduction 0.4375
at rows.28.heads 64
at rows.28.parameters 2359296
at rows.28.reduction 0.0
at rows.28.kv_bytes 75497472 # 2 x 12 layers x 1024 tokens x 768 elements x 4 bytes
at model.parameters 123532032
at model.estimated true
at variants.# 7
at variants.0.variant mha
at variants.0.biases.total 3072
at variants.3.variant gqa
at variants.3.kv_heads 3
at recommendation.variant gqa
at recommendation.experts 0
at model.prune 0.25
"$JSON_AT" rows.0.prefill_ms <out >/dev/null 2>&1 && fail 'without --measure, the JSON must not contain times'

# The CSV must have the same rows as the table; cells that contain commas must be quoted.
expect 0 "$MHA" plan --d-model 768 --csv
[ "$(wc -l <out)" = 37 ] || fail "the CSV must have a header, 29 layouts and 7 variants (got $(cat out))"
has out 'layout,mqa,8,96,8,1,1327104,1728,0.4375,'
has out 'variant,mqa,12,64,12,1,1277952,1664,0.458333,'
[ "$(awk -F, '{ print NF }' out | sort -u)" = 15 ] || fail 'all rows must have the same number of columns'

# ---- parameters of one layer, and their fraction of a model with 175 billion parameters ----
expect 0 "$MHA" plan --d-model 12288 --heads 96 --parameters 175000000000
has out 'mha       150994944  150994944  150994944  150994944        0  603979776   604028928     0.35%'
has out 'Recommended: gqa, 96 query heads, 12 key/value heads, with expert heads'
expect 0 "$MHA" plan --d-model 12288 --heads 96 --parameters 175000000000 --json
at model.experts 96
at model.top_k 2
at recommendation.experts 96
at recommendation.top_k 2
expect 0 "$MHA" plan --d-model 4096 --heads 32 --parameters 175000000000
has out '67108864    67125248     0.04%'

# ---- small models, and unavailable variants ----
expect 0 "$MHA" plan --d-model 7 --heads 7 --layers 1 --vocab 10
has out 'Recommended: mha, 7 query heads, 7 key/value heads'
has out 'no divisor but 1 and itself'
expect 0 "$MHA" plan --d-model 7 --heads 7 --json
at variants.3.left_out 'the number of heads has no divisor but 1 and itself'

# ---- recommendations for models of different sizes ----
advice() {
    expect 0 "$MHA" plan "$@"
    tr '\n' ' ' <out >advice
}
advice --d-model 7
has out 'Recommended: mha, 1 query head, 1 key/value head'
has advice 'and a single head cannot share keys and values; attention'
grep -q 'the row' advice && fail 'the advice must not name a row that one head cannot use'
advice --d-model 7 --heads 7
has advice 'worth trying (row mqa)'
advice --d-model 768 --heads 4 --prune 0.75 --parameters 50000000
has advice ' Pruning to 1 of 4 heads by measured importance removes 75 % of these parameters.'
advice --d-model 768 --parameters 99999999
has advice '99.9 million parameters, less than 100 million.'
has advice ' Light pruning to 9 of 12 heads'
advice --d-model 768 --layers 65536 --parameters 99999999
has advice 'But attention alone would have 154 billion parameters in 65536 layers: these values contradict each other.'

# ---- measured times ----
expect 0 "$MHA" plan --d-model 32 --heads 4 --layers 1 --seq 8 --dtype bf16 --measure --seconds 0.001 --json -t 1
for path in rows.0.prefill_ms rows.0.decode_ms variants.5.prefill_ms variants.5.decode_ms; do
    got=$("$JSON_AT" "$path" <out) || fail "the JSON must have $path"
    awk -v x="$got" 'BEGIN { exit !(x + 0 > 0) }' || fail "$path must be positive (got $got)"
done

# Times must also be measured for a single head of width 768.
expect 0 "$MHA" plan --d-model 768 --layers 1 --seq 2 --measure --seconds 0.001
grep -q '^mha  *1  *768 ' out || fail "the table must have a row for one head of width 768 (got $(cat out))"
! grep -q 'operator supports' out || fail "every row must be measured (got $(grep 'operator supports' out))"

# Head widths that the attention operator does not support must be marked, with and without --measure.
for measure in '' '--measure --seconds 0.001'; do
    # shellcheck disable=SC2086 # two words or none
    expect 0 "$MHA" plan --d-model 2048 --layers 1 --seq 2 $measure
    [ "$(grep -c 'heads are wider than the operator supports$' out)" = 1 ] || fail "one row, that of heads of width 2048, must be marked as unsupported (got $(cat out))"
    grep -q '^mha  *1  *2048 .*the operator supports$' out || fail 'the row of the head of width 2048 must be marked as unsupported'
done
expect 0 "$MHA" plan --d-model 2048 --json
at rows.15.head_dim 2048
at rows.15.refused 'heads are wider than the operator supports'
"$JSON_AT" rows.16.refused <out >/dev/null 2>&1 && fail 'a row with heads of width 1024 must not be marked as unsupported'
expect 0 "$MHA" plan --d-model 2048 --csv
has out ',heads are wider than the operator supports'

# ---- usage errors: the message must contain the option and its value ----
wrong() {
    name=$1 value=$2
    shift 2
    refused 2 "$MHA" plan "$@"
    has err "$name"
    has err "$value"
}
refused 2 "$MHA" plan
has err '--d-model'
wrong --d-model 0 --d-model 0
wrong --d-model -768 --d-model -768
wrong --d-model 99999999999999999999 --d-model 99999999999999999999
wrong --d-model 768x --d-model 768x
wrong heads 7 --d-model 768 --heads 7
wrong --layers 0 --d-model 768 --layers 0
wrong --vocab 1e5 --d-model 768 --vocab 1e5
wrong --seq 4294967297 --d-model 768 --seq 4294967297
wrong --dtype f64 --d-model 768 --dtype f64
wrong --prune 1 --d-model 768 --prune 1
wrong --top-k 0 --d-model 768 --top-k 0
wrong top_k 5 --d-model 768 --experts 4 --top-k 5
wrong seq 4294967296 --d-model 1048576 --layers 65536 --seq 4294967296 --batch 1048576
wrong --seconds 1 --d-model 768 --seconds 1
wrong --seconds 0 --d-model 768 --measure --seconds 0
wrong 'accepts only options' text --d-model 768 text
finish

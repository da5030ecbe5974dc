#!/bin/sh
# test_cli_plan.sh - tests `mha plan`: published parameter counts and sizes in all three output formats, measured times,
# layouts over hosts, and invalid options.
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
has out 'must have a divisor other than 1 and itself'
expect 0 "$MHA" plan --d-model 7 --heads 7 --json
at variants.3.left_out 'the number of heads must have a divisor other than 1 and itself'

# ---- recommendations for models of different sizes ----
advice() {
    expect 0 "$MHA" plan "$@"
    tr '\n' ' ' <out >advice
}
advice --d-model 7
has out 'Recommended: mha, 1 query head, 1 key/value head'
has advice 'and a single head cannot share keys and values; attention'
grep -qF '(row ' advice && fail 'with one head, the advice must not recommend a layout that shares keys and values'
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

# Head widths that the attention operator does not support must be marked.
expect 0 "$MHA" plan --d-model 8192 --layers 1 --seq 2
[ "$(grep -c 'heads are wider than the operator supports$' out)" = 1 ] || fail "one row, that of heads of width 8192, must be marked as unsupported (got $(cat out))"
grep -q '^mha  *1  *8192 .*the operator supports$' out || fail 'the row of the head of width 8192 must be marked as unsupported'
expect 0 "$MHA" plan --d-model 8192 --json
at rows.15.head_dim 8192
at rows.15.refused 'heads are wider than the operator supports'
"$JSON_AT" rows.16.refused <out >/dev/null 2>&1 && fail 'a row with heads of width 4096 must not be marked as unsupported'
expect 0 "$MHA" plan --d-model 8192 --csv
has out ',heads are wider than the operator supports'

# ---- layouts over hosts: one token of a model with 70 billion parameters in bf16, at 200 GB/s and 100 Gbit/s ----
large="--d-model 8192 --layers 80 --heads 64 --kv-heads 8 --vocab 8 --parameters 70000000000 --weights bf16 --seq 1"
fast="--network 100gbe --speed 1e18:200e9"
# shellcheck disable=SC2086 # splits the variable into words
expect 0 "$MHA" plan $large $fast --job generate --hosts 8 --memory 40G --json
at job generate
at hosts 8
at memory 42949672960
at measured false
at model.layer_weights 69999934464
at network.latency 1.5e-5
at rows.0.bytes.weights 140000262144
at rows.0.fits false
at rows.0.seconds.hidden 0.0
smallest=$("$JSON_AT" smallest <out)
at "rows.$smallest.tp" 4
at "rows.$smallest.hosts" 4
at "rows.$smallest.fits" true
fastest=$("$JSON_AT" fastest <out)
at "rows.$fastest.tp" 8
speed=$("$JSON_AT" "rows.$fastest.tokens_per_second" <out)
awk -v x="$speed" 'BEGIN { exit !(x > 10.3 && x < 10.5) }' || fail "8 hosts must decode 10.4 tokens per second (got $speed)"

# Table and CSV must have the same rows; columns that are 0 everywhere must be omitted from the table.
# shellcheck disable=SC2086 # splits the variable into words
expect 0 "$MHA" plan $large $fast --job generate --hosts 8 --memory 40G --csv
[ "$(awk -F, '{ print NF }' out | sort -u)" = 17 ] || fail 'all rows must have the same number of columns'
rows=$(($(wc -l <out) - 1))
grep -q '^4,4,1,1,1,.*,smallest$' out || fail "tp 4 must be marked as the smallest: $(cat out)"
# shellcheck disable=SC2086 # splits the variable into words
expect 0 "$MHA" plan $large $fast --job generate --hosts 8 --memory 40G
[ "$(grep -c '^ *[0-9]* *[0-9]* *[0-9]* *[0-9]* .*B ' out)" = "$rows" ] || fail "the table must have $rows rows: $(cat out)"
has out 'Smallest that fits: tp 4, cp 1, dp 1'
has out 'Command: mha-mpi launch -np 4 --tp 4 generate ...'
has out 'Command for the fastest layout: mha-mpi launch -np 8 --tp 8 generate ...'
has_not out 'optimizer'
# shellcheck disable=SC2086 # splits the variable into words
expect 0 "$MHA" plan $large $fast --job generate --hosts 8 --memory 1G
has out 'No layout fits'
# shellcheck disable=SC2086 # splits the variable into words
expect 0 "$MHA" plan $large $fast --job generate --hosts 8 --memory 1G --json
at smallest null
at fastest null

# The speed of the network must not change the memory per host. A text of 100,000 tokens must be divided among hosts.
for network in 1gbe 50e-6:25e6; do
    expect 0 "$MHA" plan --d-model 1024 --seq 100000 --hosts 4 --network $network --speed 1e12:1e10 --memory 4G --json
    at rows.1.cp 2
    "$JSON_AT" rows.1.bytes.total <out >>totals
    "$JSON_AT" rows.1.seconds.total <out >>seconds
    "$JSON_AT" hiding_tokens <out >>hiding
done
[ "$(sort -u totals | wc -l)" = 1 ] || fail "memory must not depend on the network: $(cat totals)"
[ "$(sort -n seconds | head -n 1)" = "$(head -n 1 seconds)" ] || fail "the slow network must not be faster: $(cat seconds)"
[ "$(sort -n hiding | head -n 1)" = "$(head -n 1 hiding)" ] || fail "a slower network must require more tokens per host: $(cat hiding)"

# With -m, only config.json must be required. Without --memory and --speed, this machine is measured.
mkdir config
cp "$data/models/llama-tiny/config.json" config/ 2>/dev/null || cp "$tiny/config.json" config/
expect 0 "$MHA" plan -m config --hosts 1 --json -t 1
at measured true
for path in memory speed.flops speed.bandwidth rows.0.seconds.total; do
    got=$("$JSON_AT" "$path" <out) || fail "the JSON must have $path"
    awk -v x="$got" 'BEGIN { exit !(x + 0 > 0) }' || fail "$path must be positive (got $got)"
done
# A GGUF file must have the shape of its model.
expect 0 "$MHA" convert -q builtin plan.gguf
for model in builtin plan.gguf; do
    expect 0 "$MHA" plan -m $model --hosts 1 --memory 1G --speed 1e10:1e10 --csv
    cp out "$model.csv"
done
same builtin.csv plan.gguf.csv
expect 0 "$MHA" plan -m builtin --job train --hosts 4 --workers 2 --network 0:1e9 --speed 1e10:1e10 --csv
[ "$(cut -d, -f 4 out | tr '\n' ' ')" = 'dp 1 2 ' ] || fail "with two workers, dp must be 1 or 2: $(cat out)"
# Moments in bf16 must take 4 bytes per parameter less, and be named in the text and in the JSON.
parts='-m builtin --job train --hosts 1 --speed 1e10:1e10'
# shellcheck disable=SC2086 # splits the variable into words
{
    expect 0 "$MHA" plan $parts --json
    at moments f32
    wide=$("$JSON_AT" rows.0.bytes.optimizer <out)
    expect 0 "$MHA" plan $parts --moments bf16 --json
    at moments bf16
    half=$("$JSON_AT" rows.0.bytes.optimizer <out)
    [ $((half * 2)) = "$wide" ] || fail "moments in bf16 must take half of the memory ($wide, $half)"
    expect 0 "$MHA" plan $parts --moments bf16
    has out 'Moments of AdamW in bf16.'
}
expect 0 "$MHA" plan -m builtin --job heads --hosts 6 --network ib100 --speed 1e10:1e10 --csv
[ "$(cut -d, -f 4 out | tr '\n' ' ')" = 'dp 1 2 4 6 ' ] || fail "heads must list powers of two and all hosts: $(cat out)"

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
wrong --hosts 0 --d-model 768 --hosts 0
wrong --hosts 65537 --d-model 768 --hosts 65537
wrong --hosts 2 --d-model 768 --hosts 2x --network 1gbe
for option in '-m builtin' '--kv-heads 2' '--job score' '--memory 1G' '--network 1gbe' '--speed 1:1' '--weights f32' '--workers 2'; do
    # shellcheck disable=SC2086 # splits the variable into words
    wrong "${option% *}" "${option#* }" --d-model 768 $option
    has err 'requires --hosts'
done
hosts='--hosts 2 --network 1gbe --speed 1e9:1e9'
for option in '--prune 0.5' '--experts 2' '--top-k 2' '--seconds 1'; do
    # shellcheck disable=SC2086 # splits the variable into words
    wrong "${option% *}" "${option#* }" --d-model 768 $hosts $option
    has err 'must not be given with --hosts'
done
for option in '--d-model 64' '--heads 2' '--layers 2' '--vocab 9' '--parameters 9'; do
    # shellcheck disable=SC2086 # splits the variable into words
    wrong "${option% *}" "${option#* }" -m builtin $hosts $option
    has err 'must not be given with -m'
done
# shellcheck disable=SC2086 # splits the variable into words
{
    wrong --measure --hosts --d-model 768 $hosts --measure
    wrong --d-model -m $hosts
    wrong --kv-heads 2 -m builtin $hosts --kv-heads 2
    wrong kv_heads 5 --d-model 768 $hosts --kv-heads 5
    wrong --job draw --d-model 768 $hosts --job draw
    wrong --workers 2 --d-model 768 $hosts --workers 2
    wrong workers 3 --d-model 768 $hosts --workers 3 --job train
    wrong --moments bf16 --d-model 768 $hosts --moments bf16
    wrong --moments f16 --d-model 768 $hosts --moments f16 --job train
    wrong --moments bf16 --d-model 768 --moments bf16
    wrong --weights f64 --d-model 768 $hosts --weights f64
    wrong generate encoder -m "$tiny" $hosts --job generate
    for size in '' 0 -1G 64GB 1e30 nan x G; do wrong --memory "\"$size\"" --d-model 768 $hosts --memory "$size"; done
}
for network in '' 2gbe 1:2:3 1e-6: nan:1e9; do
    wrong --network "\"$network\"" --d-model 768 --hosts 2 --network "$network"
done
for speed in '' 1e9 0:1e9 1e9:0 1e9:1e9:1 nan:1 :; do
    wrong --speed "\"$speed\"" --d-model 768 --hosts 1 --speed "$speed"
done
wrong missing --network --d-model 768 --hosts 2
refused 3 "$MHA" plan -m nowhere --hosts 1
has err nowhere
refused 3 "$MHA" plan -m "$data/vision/vit-classes" --hosts 1
has err 'the model must be a model of texts (got vit, which reads images)'
mkdir empty
refused 3 "$MHA" plan -m empty --hosts 1
has err config.json
mkdir piped
mkfifo piped/config.json
refused 3 timeout -s KILL 60 "$MHA" plan -m piped --hosts 1
has err 'piped/config.json: must be a regular file (got a fifo)'
finish

#!/bin/sh
# test_cli_plan_train.sh - tests `mha plan --train`: losses equal those of `mha train`, for any number of threads; parameter
# counts, intervals, refused variants, output formats, and invalid options.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
stories=$here/share/mha/texts/stories.txt
builtin=$here/share/mha/builtin
head -n 40 "$stories" >learned
tail -n 8 "$stories" >other
small='--d-model 16 --heads 4 --layers 1 --seq 16 --batch 2 --steps 8'

# plan OPTION...: trains small models.
plan() {
    # shellcheck disable=SC2086 # splits the variable into words
    "$MHA" plan --measure --train $small -q "$@"
}

# close A B TOLERANCE WHAT: two numbers must be close.
close() { awk -v a="$1" -v b="$2" -v e="$3" 'BEGIN { d = a - b; exit !(d <= e && d >= -e) }' || fail "$4 must be $2 (got $1)"; }

# retrain ROW SEED OPTION...: trains the model of a row with mha train, and compares the loss on the held-out texts.
retrain() {
    row=$1 seed=$2
    shift 2
    "$JSON_AT" "variants.$row.config" <decoders >config.json
    rm -rf again
    expect 0 "$MHA" train --shape config.json --length 16 --batch 2 --steps 8 -o again --seed "$seed" -q -t 1 --json "$@"
    got=$("$JSON_AT" eval_loss <out)
    close "$got" "$("$JSON_AT" "variants.$row.losses.$seed" <decoders)" 1e-8 "the loss of row $row with mha train"
}

# ---- decoders: four variants can be trained; their losses are those of mha train ----
expect 0 plan --seeds 2 -f learned --eval other --json -t 1
cp out decoders
at variants.# 7
awk -v n="$("$JSON_AT" training.held_out_sequences <decoders)" 'BEGIN { exit !(n > 0 && n <= 512) }' || fail 'the number of held-out sequences must be printed'
at variants.2.variant dynamic
for row in 2 5 6; do
    at variants.$row.refused 'it selects heads by the mean of all tokens, and in a decoder this mean includes later tokens'
done
texts="--tokenizer $builtin -f learned --eval other"
# shellcheck disable=SC2086 # splits the variable into words
{
    retrain 0 0 $texts
    retrain 3 1 $texts
    retrain 4 0 $texts
    retrain 1 1 $texts --gates l0 --gates-together --heads 3 --gates-start 2 --gates-end 4
}

# Parameter counts must agree within 1 %; the cache must be that of the key/value heads: 2 x heads x 4 x 4 bytes.
base=$("$JSON_AT" variants.0.parameters <decoders)
for row in 1 3 4; do
    close "$("$JSON_AT" "variants.$row.parameters" <decoders)" "$base" $((base / 100)) "the parameter count of row $row"
done
for pair in 0:128 1:96 3:64 4:32; do
    [ "$("$JSON_AT" "variants.${pair%:*}.kv_bytes" <decoders)" = "${pair#*:}.0" ] || fail "the cache of row ${pair%:*} must have ${pair#*:} bytes per token"
done
[ "$("$JSON_AT" variants.1.kept_heads <decoders)" = 3 ] || fail 'variant pruned must keep 3 heads'

# Two seeds: the interval is 12.7062 times half the difference of the losses; differences are paired by seed.
a=$("$JSON_AT" variants.3.losses.0 <decoders) b=$("$JSON_AT" variants.3.losses.1 <decoders)
c=$("$JSON_AT" variants.0.losses.0 <decoders) d=$("$JSON_AT" variants.0.losses.1 <decoders)
expected() { awk -v a="$a" -v b="$b" -v c="$c" -v d="$d" "function abs(x) { return x < 0 ? -x : x } BEGIN { printf \"%.9f\", $1 }"; }
close "$("$JSON_AT" variants.3.loss.mean <decoders)" "$(expected '(a + b) / 2')" 1e-7 'the mean loss'
close "$("$JSON_AT" variants.3.loss.interval <decoders)" "$(expected '12.7062047 * abs(a - b) / 2')" 1e-6 'the interval of the loss'
close "$("$JSON_AT" variants.3.minus_mha.mean <decoders)" "$(expected '(a - c + b - d) / 2')" 1e-7 'the mean difference'
close "$("$JSON_AT" variants.3.minus_mha.interval <decoders)" "$(expected '12.7062047 * abs(a - c - b + d) / 2')" 1e-6 'the interval of the difference'
"$JSON_AT" variants.0.minus_mha <decoders >/dev/null 2>&1 && fail 'variant mha must not be compared with itself'
for key in step_best_ms step_median_ms token_us peak_bytes; do
    awk -v x="$("$JSON_AT" "variants.3.$key" <decoders)" 'BEGIN { exit !(x + 0 > 0) }' || fail "$key must be positive"
done

# ---- other numbers of threads, and other formats; without --eval, the last tenth of the stories is held out ----
expect 0 plan --seeds 2 -f learned --eval other --variants mqa,pruned --csv -t 3
[ "$(wc -l <out)" = 5 ] || fail "the CSV must have a header and 2 x 2 runs (got $(cat out))"
[ "$(awk -F, '{ print NF }' out | sort -u)" = 12 ] || fail 'all rows must have the same number of columns'
[ "$(awk -F, '$1 == "mqa" && $2 == 1 { print $7 }' out)" = "$("$JSON_AT" variants.4.losses.1 <decoders)" ] || fail 'the loss of mqa must not depend on the number of threads'
[ "$(awk -F, '$1 == "pruned" && $2 == 0 { print $7 }' out)" = "$("$JSON_AT" variants.1.losses.0 <decoders)" ] || fail 'the loss of pruned must not depend on the number of threads'
expect 0 plan --seeds 1 --variants gqa,moe
grep -q '^gqa  *[0-9]* ' out || fail "the table must have a row for gqa (got $(cat out))"
has out 'it selects heads by the mean of all tokens'
tr -s '\n ' ' ' <out >words_out
grep -q 'loss on [0-9]* sequences of the last tenth of the data' words_out || fail "the number of held-out sequences must be printed (got $(cat out))"
has out 'feed-forward'
has_not out 'pruned'

# ---- encoders: all variants ----
expect 0 "$MHA" tokenizer train --type wordpiece --vocab-size 200 -f learned -o words -q
expect 0 plan --encoder --tokenizer words --feed-forward 128 --seeds 1 -f learned --eval other --json -t 1
cp out decoders
for row in 0 1 2 3 4 5 6; do
    close "$("$JSON_AT" "variants.$row.parameters" <decoders)" "$("$JSON_AT" variants.0.parameters <decoders)" "$(($("$JSON_AT" variants.0.parameters <decoders) / 100))" "the parameter count of row $row"
done
texts="--tokenizer words -f learned --eval other"
for row in 0 2 3 5 6; do
    # shellcheck disable=SC2086 # splits the variable into words
    retrain $row 0 $texts
done

# ---- invalid options ----
wrong() {
    name=$1
    shift
    refused 2 "$MHA" plan "$@"
    has err "$name"
}
wrong '--train requires --measure' --train
wrong '--steps requires --train' --d-model 16 --steps 3
wrong '-f requires --train' --d-model 16 -f learned
wrong '--encoder requires --train' --d-model 16 --encoder
for option in '--vocab 10' '--parameters 10' '--experts 2' '--seconds 1' '--hosts 2'; do
    # shellcheck disable=SC2086 # splits the variable into words
    wrong 'must not be given with --' --measure --train $option
done
wrong '--steps' --measure --train --steps 0
wrong '--seeds' --measure --train --seeds 1001
wrong '--rate' --measure --train --rate 0
wrong '--variants must be a list of mha, pruned, dynamic, gqa, mqa, moe, adaptive (got "mha,mla")' --measure --train --variants mha,mla
wrong '--variants' --measure --train --variants mha,mha
wrong '--variants' --measure --train --variants ''
wrong 'must contain a variant that can be trained' --measure --train --variants moe
has err 'moe: it selects heads by the mean of all tokens'
has err '; --encoder can train it'
wrong 'heads' --measure --train --d-model 16 --heads 3
wrong '--encoder requires --tokenizer FOLDER with [CLS], [SEP] and [MASK]' --measure --train --encoder
refused 3 "$MHA" plan --measure --train --encoder --tokenizer "$builtin"
has err '[CLS]'
wrong '--seq must be a whole number from 2 to 16777216 (got "1")' --measure --train --seq 1
wrong '--seq must be a whole number from 3 to 16777216 (got "2")' --measure --train --encoder --tokenizer words --seq 2
wrong '--layers must be a whole number from 1 to 1024 (got "2000")' --measure --train --layers 2000
refused 3 "$MHA" plan --measure --train -f other --seq 100000
# Parameters are counted without weights, so models of any size are refused at once.
refused 3 "$MHA" plan --measure --train --d-model 262144 --heads 512 --layers 1024
has err 'training of variant mha needs '
has err ' GiB available'
finish

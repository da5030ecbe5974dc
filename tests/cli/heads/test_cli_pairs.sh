#!/bin/sh
# test_cli_pairs.sh - tests heads, prune and diff of encoder-decoders on source/target pairs: output in all formats, the choice of heads by
# scores and jointly, refit, fill and search, and messages for unsuitable texts and options.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

t5=$data/seq2seq/t5 bart=$data/seq2seq/bart
for n in 1 2 3 4 5 6; do
    printf 'The house %s is large.\tA house %s\nA cat %s\tThe cat %s sat.\n' $n $n $n $n
done >pairs.tsv
printf 'One day\tone day later\nTwo days\tThe house\n' >test.tsv

# heads: all kinds of heads, with the same numbers in each format
for model in t5 bart marian mbart; do
    expect 0 "$MHA" heads -m "$data/seq2seq/$model" -f pairs.tsv --by gate --json
    at texts 12
    at importance.by gate
    at importance.texts 12
    at importance.cross.values.# 2
    at importance.decoder.head_numbers.0.0 0
done
expect 0 "$MHA" heads -m "$t5" -f pairs.tsv --by loo_loss --json
"$JSON_AT" importance.cross.values.1.2 <out >value
expect 0 "$MHA" heads -m "$t5" -f pairs.tsv --by loo_loss --csv
has out 'kind,layer,head,importance,importance_low,importance_high'
has out "cross,1,2,$(cat value),"
expect 0 "$MHA" heads -m "$t5" -f pairs.tsv --by loo_loss
has out 'cross.1.2'
has out 'Importance by loo_loss on 12 of 12 pairs, loss'
expect 0 "$MHA" heads -m "$t5" --ids --by gate "$(printf '5,6,7\t8,9,1')"
has out 'Importance by gate on 1 of 1 pairs'
# texts without tabs are measured by the encoder, as before, and so are paraphrases
expect 0 "$MHA" heads -q --no-probe -m "$t5" 'a b c' --by jacobian_probe --json
at layers 3
expect 0 "$MHA" heads -q --no-probe -m "$t5" -f pairs.tsv --by gate --loss pairs --json
at layers 3

# an interrupted measurement resumes
expect 0 "$MHA" heads -m "$t5" -f pairs.tsv --by gate --state saved --json
mv out first
expect 0 "$MHA" heads -m "$t5" -f pairs.tsv --by gate --state saved --json
same out first
refused 2 "$MHA" heads -m "$t5" -f test.tsv --by gate --state saved
has err 'saved.gate'

# prune: heads of all kinds are chosen together
expect 0 "$MHA" prune -m "$t5" --by gate --count 4 -f pairs.tsv -o by-gate --json
at heads.0 28
at heads.1 24
at quality.texts 3
at quality.held_out 'every fourth text of -f'
expect 0 "$MHA" prune -m "$t5" --by gate --count 4 --refit -f pairs.tsv --test test.tsv -o refitted --json
at quality.texts 2
expect 0 "$MHA" prune -m "$bart" --count 4 --fill --refit -f pairs.tsv -o joint --json
at chosen_by 'joint, count 4'
at heads.1 24
expect 0 "$MHA" prune -m "$t5" --ratio 0.25 --per-layer -f pairs.tsv -o even --json
at heads.1 21
for kind in decoder cross encoder; do
    "$JSON_AT" "removed.$kind.1.#" <out >count
    [ "$(cat count)" = 1 ] || fail "one head of each layer must be removed (got $(cat count) of $kind layer 1)"
done
expect 0 "$MHA" prune -m "$t5" --by ov_norm --count 3 -o norms --json
at heads.1 25
expect 0 "$MHA" prune -m "$bart" --search --by gate --max-loss-increase 1000 -f pairs.tsv --test test.tsv
has out ',cross.'
has out ',encoder.'
# saved scores choose the same heads as --by, in both formats, also of a pruned model; --part encoder reads those of the encoder
for model in t5 bart marian mbart; do
    "$MHA" heads -m "$data/seq2seq/$model" -f pairs.tsv --by gate --json >scores.json 2>/dev/null
    "$MHA" heads -m "$data/seq2seq/$model" -f pairs.tsv --by gate --csv >scores.csv 2>/dev/null
    expect 0 "$MHA" prune -m "$data/seq2seq/$model" --by gate --count 5 -f pairs.tsv --test test.tsv -o by-name --force
    for file in scores.json scores.csv; do
        expect 0 "$MHA" prune -m "$data/seq2seq/$model" --scores $file --count 5 --test test.tsv -o by-file --force
        same by-name/model.safetensors by-file/model.safetensors "$model, $file"
    done
done
for format in json csv; do
    expect 0 "$MHA" heads -m joint -f pairs.tsv --by gate --$format
    mv out again.$format
    expect 0 "$MHA" heads -m "$t5" -f pairs.tsv --by gate --$format
    mv out scores.$format
done
expect 0 "$MHA" prune -m joint --by gate --count 2 -f pairs.tsv --test test.tsv -o by-name --force
for file in again.json again.csv; do
    expect 0 "$MHA" prune -m joint --scores $file --count 2 --test test.tsv -o by-file --force
    same by-name/model.safetensors by-file/model.safetensors "scores of a pruned model, $file"
done
{ printf 'layer,head,importance\n' && sed -n 's/^encoder,//p' scores.csv | cut -d , -f 1-3; } >encoder.csv
expect 0 "$MHA" prune -m "$t5" --part encoder --scores encoder.csv --count 3 -o by-name --force
for file in scores.json scores.csv; do
    expect 0 "$MHA" prune -m "$t5" --part encoder --scores $file --count 3 -o by-file --force
    same by-name/model.safetensors by-file/model.safetensors "the encoder of $file"
done
expect 0 "$MHA" prune -m "$t5" --search --scores scores.csv --max-loss-increase 1000 -f pairs.tsv --test test.tsv
has out ',cross.'

# files that do not cover all heads, or cover other heads
for file in encoder.csv plain.json; do
    echo '{"importance": {"values": [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]}}' >plain.json
    refused 3 "$MHA" prune -m "$t5" --scores $file --count 2 -o none
    has err "$file: must contain the scores of the decoder, cross and encoder heads of t5"
    has err '(got one kind of heads; --part encoder reads scores of the encoder only)'
done
grep -v '^cross,1,2,' scores.csv >fewer.csv
refused 3 "$MHA" prune -m "$t5" --scores fewer.csv --count 2 -o none
has err 'fewer.csv: head cross.1.2 of the model must have a score'
grep -v '^encoder,' scores.csv >fewer.csv
refused 3 "$MHA" prune -m "$t5" --scores fewer.csv --count 2 -o none
has err 'fewer.csv: head encoder.0.0 of the model must have a score'
refused 3 "$MHA" prune -m "$t5" --part encoder --scores fewer.csv --count 2 -o none
has err 'fewer.csv: head encoder.0.0 of the model must have a score'
sed 's/"cross"/"crossed"/' scores.json >fewer.json
refused 3 "$MHA" prune -m "$t5" --scores fewer.json --count 2 -o none
has err 'fewer.json: importance.cross must be an object with the scores of these heads (got nothing)'
sed 's/^cross,0,0/crossed,0,0/' scores.csv >fewer.csv
refused 3 "$MHA" prune -m "$t5" --scores fewer.csv --count 2 -o none
has err 'kind must be decoder, cross or encoder (got "crossed")'
for file in scores.csv scores.json; do
    refused 3 "$MHA" prune -m builtin --scores $file --count 2 -o none
    has err "$file: must contain the scores of one kind of heads for llama (got the scores of an encoder-decoder)"
done
"$MHA" heads -m "$bart" -f pairs.tsv --by gate --json >other.json 2>/dev/null
refused 3 "$MHA" prune -m "$t5" --scores other.json --count 2 -o none
has err 'other.json: importance.decoder.values'

# pruned models are measured, pruned and compared again; the report refuses them
expect 0 "$MHA" heads -m joint -f pairs.tsv --by gate --csv
expect 0 "$MHA" prune -m joint --by gate --count 2 -f pairs.tsv -o again --json
at heads.0 24
expect 0 "$MHA" diff -m "$bart" -m joint -f test.tsv --json
at texts.texts 2
refused 2 "$MHA" report -m joint --source a --target b -o x.html
has err 'requires an encoder-decoder from which no heads were removed'

# refusals
refused 2 "$MHA" heads -m "$t5" -f pairs.tsv
has err 'missing --by SCORE, the only measure on source/target pairs'
for option in --maps --diversity; do
    refused 2 "$MHA" heads -m "$t5" -f pairs.tsv --by gate --json "$option"
done
printf 'a\tb\nc\n' >mixed.tsv
refused 3 "$MHA" heads -m "$t5" -f mixed.tsv --by gate
has err 'mixed.tsv: line 2: a text for an encoder-decoder must be a source and a target, separated by one tab'
refused 1 "$MHA" heads -m "$t5" -f pairs.tsv --by confidence
has err 'confidence must not be requested for source/target pairs'
refused 3 "$MHA" heads -m "$data/seq2seq/whisper" --by gate "$(printf 'a\tb')"
has err 'must read text (got whisper, which reads audio: use mha transcribe)'
refused 3 "$MHA" prune -m "$t5" --by gate --count 2 --fill -f pairs.tsv -o none
has err 'fill must be NULL for t5, since its output projections have no bias'
refused 3 "$MHA" regroup -m "$t5" --kv-heads 2 --by gate -f pairs.tsv -o none
has err 'must not be regrouped, since it is an encoder-decoder'
finish

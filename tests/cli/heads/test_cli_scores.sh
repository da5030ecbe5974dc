#!/bin/sh
# test_cli_scores.sh - `mha prune` and `mha regroup` must measure the same scores as `mha heads`, and must read scores
# that `mha heads` has written.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
prune() { "$MHA" prune -m "$tiny" --force "$@"; }
regroup() { "$MHA" regroup -m "$tiny" --force "$@"; }
heads() { "$MHA" heads -m "$tiny" "$@"; }

awk 'BEGIN { split("you keep the count of all that they said and then again once more", w, " ")
             for (i = 0; i < 24; i++) {
                 for (j = 0; j < 6 + i % 5; j++) printf "%s ", w[(i * 5 + j * 3) % 14 + 1]
                 printf "\t"
                 for (j = 0; j < 5 + i % 4; j++) printf "%s ", w[(i * 5 + j * 7) % 14 + 1]
                 print "" } }' >pairs
head -n 16 pairs >choose
tail -n 8 pairs >judge
tr -d '\t' <choose >single

# mha prune --by SCORE must remove the same heads as mha heads --by SCORE followed by mha prune --scores FILE.
for by in gradmag gate loo_loss taylor_token; do
    expect 0 prune --by $by --loss pairs -f choose --test judge --ratio 0.3 --per-layer -o direct --json
    at heads.1 6
    at chosen_by "$by, ratio 0.3 of each layer"
    expect 0 heads --by $by --loss pairs -f choose --json
    cp out scores.json
    expect 0 heads --by $by --loss pairs -f choose --csv
    cp out scores.csv
    for file in scores.json scores.csv; do
        expect 0 prune --scores $file --ratio 0.3 --per-layer -o by_file --json
        at chosen_by "$file, ratio 0.3 of each layer"
        same direct/model.safetensors by_file/model.safetensors "$by, $file"
    done
done
prune --scores - --ratio 0.3 --per-layer -o piped <scores.csv >/dev/null 2>&1 || fail 'scores must be read from standard input'
same direct/model.safetensors piped/model.safetensors 'standard input'

# Scores and other files must be read from a FIFO, such as <(COMMAND) of a shell. A signal must end the wait for the
# writer of a FIFO and for its data.
mkfifo fifo
cat scores.csv >fifo &
expect 0 prune --scores fifo --ratio 0.3 --per-layer -o by_fifo
same direct/model.safetensors by_fifo/model.safetensors 'a FIFO'
ended() { # COMMAND...: after SIGINT or SIGTERM, the exit status must be 128 + the number of the signal
    for pair in INT:130 TERM:143; do
        expect "${pair#*:}" timeout --foreground --preserve-status -k 60 -s "${pair%:*}" 0.5 "$MHA" "$@"
        [ ! -s out ] && [ ! -s err ] || fail "a command that is ended must not print anything: $*"
    done
}
ended prune -m "$tiny" --scores fifo --ratio 0.3 -o stopped
ended prune -m "$tiny" --keep fifo -o stopped
ended report -m "$tiny" --curve fifo -o stopped.html keep
ended patch -m builtin --pairs fifo
ended train --config fifo -f single -o stopped
sleep 60 >fifo & # a writer without data
writer=$!
ended prune -m "$tiny" --scores fifo --ratio 0.3 -o stopped
kill $writer
[ ! -e stopped ] && [ ! -e stopped.html ] || fail 'a command that is ended must not write files'

# prune and regroup must accept the options of mha heads for scores.
refused 2 prune --by gradmag -f choose --count 2 -o x
has err 'give --loss pairs'
refused 2 prune --by gradmag --loss pairs -f single --count 2 -o x
has err 'separated by one tab'
refused 2 prune --by gradmag --loss pairs -f choose --test choose --count 2 -o x
has err 'is also used to choose heads'
expect 0 prune --by gate --loss pairs -f pairs --count 2 -o x --json # pairs for scores must not be used for evaluation
at quality.texts 12
expect 0 prune --by jacobian_probe --probes 2 -s 3 -f single --count 2 -o x
expect 0 prune --by gate --loss pairs --batch 4 --settle 0.9 --state kept -f choose --test judge --count 2 -o x
[ -s kept.gate ] || fail 'the state file of the score must exist'
expect 0 "$MHA" prune -m "$data/models/bert-mlm-tiny" --by gradmag --loss mlm -f single --test judge --count 2 -o x --force
refused 2 prune --loss pairs -f choose --count 2 -o x
has err '--loss requires --by SCORE'
refused 2 prune --by joint --probes 2 -f choose --count 2 -o x
refused 2 prune --by gate --scores scores.json -f choose --count 2 -o x
has err '--by and --scores'
refused 2 prune --scores scores.json --heads 0.1 -o x
expect 0 prune --scores scores.json --count 2 --refit --loss pairs -f choose --test judge -o x --json
at quality.texts 16
expect 0 prune --search --scores scores.json -f judge --max-loss-increase 9 --json
at best.heads 3

# Scores must weight the heads that are merged into a shared head, whether the scores are measured or read from a file.
expect 0 regroup --kv-heads 2 -f choose --loss pairs --by gate --test judge -o weighted
has weighted/config.json '"weighted_by": "gate"'
heads --by gate --loss pairs -f choose --json >gate.json 2>/dev/null
heads --by gate --loss pairs -f choose --csv >gate.csv 2>/dev/null
for file in gate.json gate.csv; do
    expect 0 regroup --kv-heads 2 -f choose --loss pairs --scores $file --test judge -o by_file
    same weighted/model.safetensors by_file/model.safetensors "regroup, $file"
done
expect 0 regroup --kv-heads 2 -f single --test judge -o plain
if cmp -s plain/model.safetensors weighted/model.safetensors; then fail 'the scores must change the result'; fi
expect 0 regroup --kv-heads 2 --method mean --scores gate.json -o mean
refused 2 regroup --kv-heads 2 --method mean --by gate -o x
refused 2 regroup --kv-heads 2 --published --by gate --loss pairs -f choose -o x

# A file without scores, or with scores of a different model, must be rejected.
wrong() {
    printf '%s' "$1" >wrong
    refused 3 prune --scores wrong --count 2 -o never
    has err "wrong: $2"
}
header='layer,head,importance'
line='
0,0,1'
wrong '' 'must contain scores (got an empty file)'
wrong '{' 'line 1:'
wrong '{}' 'importance must be an object written by mha heads --by SCORE --json (got nothing)'
wrong '{"importance": {"values": 3}}' 'importance.values must have one list for each of the 3 layers of the model (got 3)'
wrong '{"importance": {"values": [[1,2,3,4],[1,2,3,4]]}}' 'importance.values must have one list for each of the 3 layers'
wrong '{"importance": {"values": [[1,2,3,4],[1,2,3],[1,2,3,4]]}}' \
    'importance.values[1] must have one number for each of the 4 heads of the layer (got [1,2,3])'
wrong '{"importance": {"values": [[1,2,3,4],[1,2,null,4],[1,2,3,4]]}}' 'importance.values[1][2] must be a number (got null)'
wrong '{"importance": {"values": [[1,2,3,4],[1,2,"3",4],[1,2,3,4]]}}' 'importance.values[1][2] must be a number (got "3")'
wrong "layer,head,label$line" 'line 1 must name the columns written by mha heads --by SCORE --csv, including "importance" (got "layer", ...)'
wrong "$header$line$line" 'line 3: head 0 of layer 0 must be on only one line (got a second line)'
wrong "$header$line,2" 'line 2: must have 3 cells, like line 1 (got 4)'
wrong "$header$line" 'head 0.1 of the model must have a score'
for value in x '' nan inf '1 2' ' 1'; do
    wrong "$header
0,0,$value" "line 2: importance must be a number (got \"$value\")"
done
for layer in 3 -1 x 99999999999999999999; do
    wrong "$header
$layer,0,1" "line 2: layer must be one of the 3 layers of the model (got \"$layer\")"
done
wrong "$header
0,4,1" 'line 2: head must be one of the 4 heads of the layer (got "4")'
refused 3 prune --scores missing --count 2 -o never
refused 3 prune --scores . --count 2 -o never
refused 3 "$MHA" prune -m "$data/models/bert-mlm-tiny" --scores scores.json --count 2 -o never
[ ! -e never ] || fail 'rejected scores must not write a model'
expect 0 prune --heads 0.0,1.1 -o fewer
refused 3 "$MHA" prune -m fewer --scores scores.json --count 2 -o never
has err 'importance.values[0] must have one number for each of the 3 heads of the layer'

# In the scores of a pruned model, heads must have the numbers of the unpruned model.
expect 0 "$MHA" heads -m fewer --by ov_norm -f single --csv
[ "$(cut -d , -f 1,2 out | tr '\n' ' ')" = 'layer,head 0,1 0,2 0,3 1,0 1,2 1,3 2,0 2,1 2,2 2,3 ' ] || fail "the CSV must list the heads with the numbers of the unpruned model (got $(cut -d , -f 1,2 out))"
cp out fewer.csv
expect 0 "$MHA" heads -m fewer --by ov_norm -f single --json
at head_numbers.0.0 1
at head_numbers.1.1 2
cp out fewer.json
expect 0 "$MHA" prune -m fewer --by ov_norm --count 4 -o measured --force
for file in fewer.csv fewer.json; do
    expect 0 "$MHA" prune -m fewer --scores $file --count 4 -o by_file --force
    same measured/model.safetensors by_file/model.safetensors "scores of a pruned model, $file"
done
expect 0 prune --heads 0.1,1.0 -o others
for file in fewer.csv fewer.json; do # the same number of heads, but different heads
    refused 3 "$MHA" prune -m others --scores $file --count 1 -o never
done
has err 'head_numbers[0][0] must be a head of the model (got 1)'
echo '{"head_numbers": [[1,2,2],[0,2,3],[0,1,2,3]], "importance": {"values": [[1,2,3],[1,2,3],[1,2,3,4]]}}' >twice.json
refused 3 "$MHA" prune -m fewer --scores twice.json --count 1 -o never
has err 'twice.json: head_numbers[0][2] must be a head that occurs only once in the layer (got 2)'

# If a file cannot be read, the message must state the reason, not that the file is malformed.
refused 3 prune --scores . --count 2 -o never
has err ': Is a directory'
refused 3 prune --keep . -o never
has err ': Is a directory'

# CRLF line endings and a byte order mark must be accepted.
sed 's/$/\r/' scores.csv >windows.csv
expect 0 prune --scores windows.csv --ratio 0.3 --per-layer -o windows
same direct/model.safetensors windows/model.safetensors 'CR LF'
{ printf '\357\273\277' && cat scores.json; } >bom.json
expect 0 prune --scores bom.json --ratio 0.3 --per-layer -o bom
same direct/model.safetensors bom/model.safetensors 'byte order mark'
wrong 'no scores' 'line 1 must name the columns written by mha heads --by SCORE --csv, including "layer" (got "no scores")'

# A scores file larger than 16 MiB must be rejected.
head -c 16777217 /dev/zero | tr '\0' ' ' >long
refused 3 prune --scores long --count 1 -o none
has err 'long: must be at most 16 MiB'
# A batch without a token in the loss must be rejected before any text is measured.
printf 'The cat sat.\n\na\nThe dog ran.\n' >short.txt
expect 0 "$MHA" heads -f short.txt --by gate --json
refused 2 "$MHA" heads -f short.txt --by gate --batch 1 --state short.state
has err 'short.txt: line 3: a batch must have at least one token in the loss'
printf 'The cat sat.\n\na\n\nb\n' >short.txt
refused 2 "$MHA" heads -f short.txt --by gradmag --batch 1
has err 'short.txt: line 3: a batch must have at least one token in the loss'
printf 'a\n\nb\n' >short.txt
refused 2 "$MHA" heads -f short.txt --by gate
has err 'short.txt: lines 1 to 3: a batch must have at least one token in the loss'
refused 2 "$MHA" heads a b --by gate
has err 'texts 1 to 2 of 2: a batch must have at least one token in the loss'
[ -e short.state ] && fail 'no step must have been run'
finish

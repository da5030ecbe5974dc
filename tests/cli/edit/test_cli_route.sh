#!/bin/sh
# test_cli_route.sh - `mha route` and --heads-per-sequence: what is written is found and used; all heads are the whole
# model; wrong use, and routers of other weights, are refused.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

i=0
while [ $i -lt 16 ]; do
    echo "you keep the count of $i, and then again, they said"
    i=$((i + 1))
done >texts
echo 'they said that the count is kept' >judged
cp -r "$data/models/gpt2-tiny" tiny
cp -r "$data/models/bert-tiny" other

expect 0 "$MHA" route -m tiny -f texts -o tiny/router.safetensors --json
at texts 4
at held_out 'every fourth of -f'
heads=$("$JSON_AT" rows.0.heads_per_sequence <out)
expect 0 "$MHA" info -m tiny --json
at heads $((heads + 1))
refused 2 "$MHA" route -m tiny -f texts -o tiny/router.safetensors
expect 0 "$MHA" route -m tiny -f texts --test judged
has out 'fixed heads'
has out '(--test)'

for command in score generate logits; do
    case $command in generate) more='-n 4' ;; *) more= ;; esac
    # shellcheck disable=SC2086 # options
    expect 0 "$MHA" "$command" -m tiny $more --json 'you keep the count'
    cp out whole
    # shellcheck disable=SC2086
    expect 0 "$MHA" "$command" -m tiny $more --json --heads-per-sequence $((heads + 1)) 'you keep the count'
    same out whole "$command with all heads"
    # shellcheck disable=SC2086
    expect 0 "$MHA" "$command" -m tiny $more --json --heads-per-sequence 1 'you keep the count'
    [ "$command" = generate ] || ! cmp -s out whole || fail "$command: one head is as good as all"
done
expect 0 "$MHA" embed -m tiny --json --heads-per-sequence 1 --router tiny/router.safetensors 'you keep the count'

refused 2 "$MHA" embed -m tiny --heads-per-sequence 0 text
refused 2 "$MHA" embed -m tiny --heads-per-sequence 99 text
has err 'heads'
refused 2 "$MHA" embed -m tiny --router tiny/router.safetensors text
refused 3 "$MHA" embed -m other --heads-per-sequence 1 text
refused 3 "$MHA" embed -m other --heads-per-sequence 1 --router tiny/router.safetensors text
refused 3 "$MHA" embed -m other --heads-per-sequence 1 --router texts text
refused 3 "$MHA" embed -m tiny --dtype bf16 --heads-per-sequence 1 text
refused 2 "$MHA" route -m tiny
has err '-f FILE'
refused 2 "$MHA" route -m tiny --test judged
has err '-f FILE'
refused 2 "$MHA" route -m tiny -f texts -o router.bin
refused 2 "$MHA" route -m tiny -f texts more
head -n 4 texts >few
refused 2 "$MHA" route -m tiny -f few
refused 3 "$MHA" route -m tiny -f missing
[ -e router.bin ] && fail 'a refused command wrote something'
finish

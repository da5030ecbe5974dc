#!/bin/sh
# test_cli_regroup.sh - tests `mha regroup`: the written folder must load and record the edit, quality must be measured
# on held-out texts, and usage errors must be rejected.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
regroup() { "$MHA" regroup -m "$tiny" "$@"; }

i=0
while [ $i -lt 12 ]; do
    echo "you keep the count of $i, and then again, they said"
    i=$((i + 1))
done >texts

expect 0 regroup -o two --kv-heads 2 -f texts --json
at out two
at method closed
at key_heads.0 4
at key_heads.1 2
at value_heads.1 2
at quality.texts 3
at quality.held_out 'every fourth text of -f'
expect 0 "$MHA" info -m two --json
at key_heads_per_layer.0 2
at value_heads_per_layer.2 2
grep -q '"regrouped"' two/config.json || fail 'config.json must contain a record of the edit'
expect 0 "$MHA" embed -m two 'you keep the count'

head -n 8 texts >few
expect 0 regroup -o keys --key-heads 1 -f few --test texts --published
has out 'key heads per layer'
has out '(--test)'
expect 0 regroup -o mean --kv-heads 1 --method mean
has out 'were not measured'
expect 0 regroup -o whole --kv-heads 2 -f texts --compatible --json
grep -q 'mha.kv_heads' whole/config.json && fail 'a compatible config must not contain mha.kv_heads'
expect 0 "$MHA" info -m whole --json
at key_heads_per_layer.0 4

# A message must name the violated rule of transformers, even after another edit.
rule='keys and values must have the same number of heads'
llama() { "$MHA" regroup -m "$data/families/llama" --method mean --force "$@"; }
expect 0 llama -o apart --value-heads 1
has err "transformers cannot load this folder, because $rule"
expect 0 "$MHA" prune -m apart --ratio 0 --by ov_norm -o less
has err "transformers cannot load this folder, because $rule"
expect 0 llama -o alike --kv-heads 1
has_not err transformers
expect 0 llama -o alike --value-heads 1 --compatible
has_not err transformers
expect 0 regroup -o shared --kv-heads 2 --method mean
has err 'transformers cannot load this folder, because each head must have its own keys and values'

# The reported bytes must equal those that mha info prints.
expect 0 "$MHA" regroup -m "$data/families/llama-f16" -o stored --kv-heads 1 --method mean --json
after=$("$JSON_AT" bytes.1 <out)
expect 0 "$MHA" info stored --json
at bytes "$after"

refused 2 regroup -o two --kv-heads 2 -f texts
expect 0 regroup -o two --force --kv-heads 1 -f texts
refused 2 regroup --kv-heads 2 -f texts
refused 2 regroup -o new -f texts
refused 2 regroup -o new --kv-heads 2
refused 2 regroup -o new --kv-heads 3 -f texts
refused 2 regroup -o new --kv-heads 2 --key-heads 2 -f texts
refused 2 regroup -o new --kv-heads 2 --method best -f texts
refused 2 regroup -o new --kv-heads 2 --published --ridge 1 -f texts
refused 2 regroup -o new --kv-heads 2 -f texts more
refused 3 regroup -o new --kv-heads 2 -f missing
[ -e new ] && fail 'a rejected command must not write a file'

# Blank texts must be rejected. For a model without a tokenizer, ids must be accepted.
printf '\n\n\n\n\n' >blank
mkdir mute
cp "$data/models/gpt2-tiny/config.json" "$data/models/gpt2-tiny/model.safetensors" mute
for i in 1 2 3 4 5 6 7 8; do echo "$i,402,88,$i,402,88"; done >ids
refused 3 "$MHA" regroup -m "$tiny" -f blank --kv-heads 2 -o blank_out
has err 'blank'
refused 3 "$MHA" regroup -m mute -f ids --kv-heads 2 -o mute_out
has err '--ids'
expect 0 "$MHA" regroup -m mute --ids -f ids --kv-heads 2 -o mute_out
[ -e mute_out/model.safetensors ] || fail 'regroup with ids must write a model'
[ ! -e blank_out ] || fail 'a rejected command must not write blank_out'

# Without --method, rotated keys must be merged by values. A folder that cannot be written must be rejected before the model is opened.
expect 0 "$MHA" regroup --kv-heads 4 -f texts -o rotated --json
at method values
has err 'using --method values, since the keys of llama are rotated or normalized'
expect 0 "$MHA" regroup --value-heads 4 -f texts -o unrotated --json
at method closed
refused 3 "$MHA" regroup --kv-heads 4 -f texts -o rotated2 --method closed
refused 1 "$MHA" regroup -m nowhere --kv-heads 4 -f texts -o nowhere/rotated
has err 'nowhere/rotated: cannot write: No such file or directory'
refused 2 "$MHA" regroup --kv-heads 3 --method mean --ridge 0 -o none
has err 'mha regroup: --kv-heads must be a divisor of 8, the head count of layer 0 (got 3)'
finish

#!/bin/sh
# test_cli_logits.sh - tests `mha logits`: the logits in tables, JSON and files must equal those of transformers.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
model=$data/models/gpt2-tiny
logits() { "$MHA" logits -m "$model" "$@"; }

# The most likely next token must be the token that transformers generates. A text and its ids must give the same
# result.
expect 0 logits --json 'Every morn'
at ids '[36,402,88,287,292,77]'
at tokens.0 E
at at 5
at top.# 5
at top.0.id 45
at top.1.id 620
cp out text
expect 0 logits --json --ids 36,402,88,287,292,77
same text out 'a text and its ids'
expect 0 logits --json --ids 36,402,88,287,292,77 --at 5
same text out '--at of the last token'
expect 0 logits --json --ids 36,402,88,287,292,77,45 --at 5 --top 2
at top.# 2
at top.0.id 45
expect 0 logits 'Every morn'
has out '7.0913'
has out 'Ġsmall'
expect 0 logits --json --top 1000 --ids 1
at top.# 640

# A discriminator has one logit per token, the log-odds that the token was replaced.
discriminator=$data/families2/electra-discriminator
expect 0 "$MHA" logits -m "$discriminator" --ids 5,9,12 --json
at replaced.# 3
at replaced.1.id 9
expect 0 "$MHA" logits -m "$discriminator" --ids 5,9,12
has out replaced
for option in --at --top; do
    refused 2 "$MHA" logits -m "$discriminator" --ids 5,9,12 $option 1
    has err '--at and --top require a model with logits of tokens (got electra)'
done

# Logits, hidden states and attention maps must agree with those recorded from transformers.
if command -v python3 >/dev/null; then
    tensors() { python3 "$here/tests/cli/tensors.py" "$@"; }
    record=$discriminator.safetensors
    expect 0 "$MHA" logits -m "$discriminator" --ids "$(tensors ids "$record" prompt/input_ids)" -o discriminator.st
    tensors compare 5e-5 "$record" prompt/logits discriminator.st logits || fail 'the log-odds must agree with the recorded log-odds'
    for name in gpt2-tiny gemma2-tiny bert-mlm-tiny; do
        record=$data/models/$name.safetensors
        expect 0 "$MHA" logits -m "$data/models/$name" --ids "$(tensors ids "$record" prompt/input_ids)" --hidden --attn -o $name.st
        tensors compare 5e-5 "$record" prompt/logits $name.st logits || fail "$name: the logits must agree with the recorded logits"
        tensors compare 5e-5 "$record" prompt/hidden $name.st 'hidden.*' || fail "$name: the hidden states must agree with the recorded hidden states"
        tensors compare 1e-5 "$record" prompt/attn $name.st 'attn.*' || fail "$name: the maps must agree with the recorded maps"
    done
fi

# --knockout must give the logits that mha knockout measures, and must be refused for edges that do not exist.
words=' red cat key boat hat drum red cat key'
expect 0 "$MHA" knockout --json "$words" --answer ' boat' --wrong ' ring' --from 8 --to 3 --heads 1.0,1.3 --metric logprob
measured=$("$JSON_AT" raw.0 <out)
expect 0 "$MHA" logits --json --knockout 1.0:8-3,1.3:8-3 "$words"
at top.0.token 'Ġboat'
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }'; }
near "$("$JSON_AT" top.0.probability <out)" "$(awk -v x="$measured" 'BEGIN { print exp(x) }')" || fail "the probability must be exp($measured)"
for edges in x 1.9:8-3 2:8-3 1:9-3 1:8-9 1:8-3, 1:8 1.0:-1-3; do
    refused 2 "$MHA" logits --knockout=$edges "$words"
    has err '--knockout must be WHERE:QUERY-KEY'
done

# A file must contain all requested tensors and must be replaced only with --force. If it cannot be written, the command
# must fail.
expect 0 logits --ids 17,402,264 -o plain.st
expect 0 "$MHA" info plain.st
has out 'logits ['
has_not out hidden
refused 2 logits --ids 1 -o plain.st
has err --force
expect 0 logits --ids 1 -o plain.st --force --hidden
expect 0 "$MHA" info plain.st
has out 'hidden.3 [1, 48]'
refused 1 logits --ids 1 -o no/such/folder/x.st
[ -z "$(find . -name '*.tmp*')" ] || fail 'no temporary file may remain'

# An output file with the extension .npy must contain only the logits.
expect 0 logits --ids 17,402,264 -o both.st
expect 0 logits --ids 17,402,264 -o plain.npy
expect 0 "$MHA" info plain.npy
has out 'npy'
has out '[3, 640]'
tail -c 7680 plain.npy >npy
tail -c 7680 both.st >st
same npy st 'the logits of both formats'
refused 2 logits --ids 1 --hidden -o x.npy
has err .safetensors
refused 3 "$MHA" logits -m "$data/models/bert-tiny" text -o x.npy
[ ! -e x.npy ] || fail 'a rejected command must not write a file'

# For a checkpoint without an LM head, all results except the logits must be available.
refused 3 "$MHA" logits -m "$data/models/bert-tiny" text
has err 'no logits'
expect 0 "$MHA" logits -m "$data/models/bert-tiny" text --attn -o maps.st
has err 'no logits'
expect 0 "$MHA" info maps.st
has out 'attn.2'
has_not out logits

# The maps of selected heads must equal the maps of the same heads with --attn, and the statistics must equal those computed from the maps.
expect 0 "$MHA" logits -m "$data/models/gemma2-tiny" --ids 5,9,3,300,2,17,8,44,6,21,9,9 --heads 2.1,0.3,2.0 --stats -o some.st
expect 0 "$MHA" logits -m "$data/models/gemma2-tiny" --ids 5,9,3,300,2,17,8,44,6,21,9,9 --attn -o all.st
expect 0 "$MHA" info some.st
has out 'attn.0.3 [12, 12]'
has out 'attn.2.0 [12, 12]'
has out 'row_argmax.3 [4, 12]'
has_not out 'attn.1'
if command -v python3 >/dev/null; then
    tensors heads all.st some.st || fail 'selected heads and statistics must match the full maps'
fi
expect 0 "$MHA" logits -m "$data/models/bert-tiny" text --stats -o stats.st
refused 2 logits --ids 1 --heads 0.1
refused 2 logits --ids 1 --stats
refused 2 logits --ids 1 --heads 0.1 --attn -o x.st
for wrong in '' 0 0. .1 '0.1,' 0.1,,0.2 0.1.2 3.0 0.4 -1.0 0.1,0.1 0.9999999999; do
    refused 2 logits --ids 1 --heads "$wrong" -o x.st
done

# With --ids, no tokenizer must be required.
mkdir mute
cp "$model/config.json" "$model/model.safetensors" mute
expect 0 "$MHA" logits -m mute --ids 36,402,88,287,292,77 --json
at top.0.id 45
at tokens.0 ''
refused 3 "$MHA" logits -m mute text

refused 2 logits
refused 2 logits --ids 1 text
refused 2 logits text text
refused 2 logits --hidden text
for wrong in '' ',1' '1,' '1,,2' -1 640 1x 99999999999999999999; do
    refused 2 logits --ids "$wrong"
done
refused 2 logits --at 6 --ids 1,2
refused 2 logits --top 0 --ids 1
refused 3 logits ''
refused 3 logits --ids "$(seq -s, 100)"
echo 36,402,88,287,292,77 >ids
expect 0 logits --json --ids -f ids
at top.0.id 45
echo 1,x >ids
refused 3 logits --ids -f ids

# Gates of 1 change nothing. Without the gated heads, a pruned model has the same logits.
expect 0 logits --json 'Every morn'
cp out plain
expect 0 logits --json --gates 0.1=1,1.0=1.0 'Every morn'
same plain out 'gates of 1'
expect 0 logits --json --gates 0.1=1 --mean 'Every morn'
same plain out 'gates of 1 with means'
expect 0 "$MHA" prune -q -m "$model" --heads 0.1,1.2 -o pruned
expect 0 "$MHA" logits -m pruned 'Every morn'
cut -c 1-9 out >pruned-logits
expect 0 logits --gates 0.1=0,1.2=0 'Every morn'
cut -c 1-9 out >gated-logits
same pruned-logits gated-logits 'a pruned model'
expect 0 logits --gates 0.1=0,1.2=0 --mean 'Every morn'
cut -c 1-9 out >mean-logits
! cmp -s mean-logits gated-logits || fail '--mean must change the logits'
for gates in '' 0.1 0.1= 0.1=x 0.1=0, =1 0.1=nan 0.1=1e999 0.1=1e300 0.1=0.5x 0:1=0; do
    refused 2 logits --gates "$gates" 'Every morn'
    has err '--gates must be LAYER.HEAD=GATE,...'
done
refused 2 logits --gates 7.1=0 'Every morn'
has err '--gates must name heads of the model (got 7.1)'
refused 2 logits --gates 0.1=1,0.1=1 'Every morn'
has err '--gates must list each head once (got 0.1 twice)'
refused 2 logits --mean 'Every morn'
has err '--mean requires --gates or --effects'

# The effect of a head is the divergence of the predictions, and the steps of a head give its weights and its output.
expect 0 logits --json --top 1000 --gates 1.0=0.5 --mean --at 3 'Every morn'
cp out with.json
expect 0 logits --json --top 1000 --gates 1.0=0.5,0.1=0 --mean --at 3 'Every morn'
cp out without.json
expect 0 logits --json --gates 1.0=0.5 --mean --effects --steps 0.1 --at 3 'Every morn'
at effects.# 12
at effects.1.head 0.1
at steps.head 0.1
at steps.keys.# 6
if command -v python3 >/dev/null; then
    python3 "$here/tests/cli/head_views.py" out with.json without.json || fail 'effects and steps must agree with other results'
fi
expect 0 logits --effects --steps 0.1 'Every morn'
has out 'effect, bits  head'
has out 'steps of head 0.1 for token 5'
expect 0 "$MHA" logits -m pruned --json --effects --steps 0.2 'Every morn'
at effects.1.head 0.2
at steps.head 0.2
expect 0 "$MHA" logits -m "$data/models/bert-tiny" --json --effects --steps 1.0 --at 1 text
has out '"effects"'
expect 0 "$MHA" logits -m "$discriminator" --ids 5,9,12 --json --effects --steps 0.0 --at 1
at replaced.# 3
at steps.at 1
for head in '' 0 0.1x 0.1,0.2 -1.0; do
    refused 2 logits --steps "$head" 'Every morn'
    has err '--steps must be LAYER.HEAD'
done
refused 2 logits --steps 7.1 'Every morn'
has err '--steps must name a head of the model (got 7.1)'
refused 2 "$MHA" logits -m "$data/seq2seq/t5" --effects "a, b. c"
has err 'require an encoder or a decoder of texts'
finish

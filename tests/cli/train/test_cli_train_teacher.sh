#!/bin/sh
# test_cli_train_teacher.sh - tests `mha train --teacher`: distillation of a pruned model from the unpruned model.
# Decoders are trained on the logits of the teacher and on labels, encoders without logits on hidden states.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
train() { "$MHA" train -t 1 "$@"; }
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }' || fail "$3 must be below $2 (got $1)"; }
step() { sed -n "$(($2 + 1))p" "$1/training.jsonl" | "$JSON_AT" "$3"; }

counting 80 >text
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o bpe -f text
expect 0 train -q --shape gpt2:2x4x32 --tokenizer bpe -f text --steps 40 --rate 0.01 --length 16 --batch 4 -o whole
expect 0 "$MHA" prune -q -m whole --heads 0.1,0.2,1.0 -o pruned -f text

# For a decoder, the defaults must be equal weights of labels and the teacher's logits, and temperature 2. The settings
# must be saved.
any='--length 16 --batch 4 --rate 0.01'
small="$any --steps 40"
# shellcheck disable=SC2086 # splits the variable into words
expect 0 train -q --json --from pruned --teacher whole -f text $small --eval-share 0.1 -o mended
at perplexity null
[ "$("$JSON_AT" eval_loss <out)" = "$(step mended 40 eval_loss)" ] || fail 'the result and the log must have the same loss'
below "$(step mended 40 eval_loss)" "$(step mended 0 eval_loss)" 'the held-out loss after training'
"$JSON_AT" settings.label_weight <mended/training.json >out
has out 0.5
"$JSON_AT" settings.teacher_temperature <mended/training.json >out
has out 2
"$JSON_AT" settings.teacher <mended/training.json >out
has out "$work/whole"
expect 0 "$MHA" info -m mended

# Without labels, the loss must decrease, and must be 0 for a model that is its own teacher.
# shellcheck disable=SC2086
expect 0 train -q --from pruned --teacher whole --logit-weight 1 -f text $small -o alike
below "$(step alike 40 loss)" 0.1 'the loss after 40 steps'
below "$(step alike 40 loss)" "$(step alike 1 loss)" 'the loss after 40 steps'
# shellcheck disable=SC2086
expect 0 train -q --from whole --teacher whole --logit-weight 1 --state-weight 1 --text-weight 1 -f text $small --decay 0 -o itself
[ "$(step itself 1 loss)" = 0.0 ] || fail "the loss of a model that is its own teacher must be 0 (got $(step itself 1 loss))"
[ "$(step itself 40 norm)" = 0.0 ] || fail 'the gradient of a model that is its own teacher must be 0'

# A resumed run must equal an uninterrupted run, and must find the teacher's folder from any working directory.
# shellcheck disable=SC2086
expect 0 train -q --from pruned --teacher whole -f text $any --steps 30 --schedule constant --warmup 0 -o straight
# shellcheck disable=SC2086
expect 0 train -q --from pruned --teacher whole -f text $any --steps 12 --schedule constant --warmup 0 -o part
mkdir elsewhere
cd elsewhere || exit 1
expect 0 train -q --resume --steps 30 -o ../part
cd .. || exit 1
same part/model.safetensors straight/model.safetensors 'resumed'
same part/training.safetensors straight/training.safetensors 'resumed'

# On resume, a teacher that has changed must be accepted only if --teacher is given. The teacher must not be the output folder.
cp -r whole by
for name in by by/ ./by; do
    refused 2 train --from pruned --teacher "$name" -f text --steps 4 -o by --force
    has err ', the folder read by --teacher)'
done
same whole/model.safetensors by/model.safetensors
expect 0 train -q --from pruned --teacher by -f text --steps 2 --length 16 -o pupil
mv by by.before
cp -r mended by
refused 3 train --resume --steps 4 -o pupil
has err 'by differs from the teacher of the checkpoint'
expect 0 train --resume --steps 4 --teacher by -o pupil
has err 'teacher changed: results will differ'
expect 0 train --resume --steps 5 --teacher by -o pupil
has_not err 'another teacher'
sed '1s/{/{"layer_norm_epsilon": 0.5,/' by/config.json >altered
mv altered by/config.json
refused 3 train --resume --steps 6 -o pupil
has err 'by differs from the teacher of the checkpoint'

# The sequence length must be at most the maximum length of the teacher. The default must not exceed this maximum.
expect 0 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 8 --steps 1 -o brief
refused 2 train --from pruned --teacher brief --length 16 -f text --steps 1 -o x
has err '--length must be at most the 8 tokens of the teacher (got 16)'
expect 0 train -q --from pruned --teacher brief -f text --steps 1 -o limited
"$JSON_AT" settings.length <limited/training.json >out
has out 8

# An encoder without logits must be trained on the hidden states of texts of any length, without masked tokens, and must
# then be closer to the teacher.
encoder=$data/models/bert-tiny
head -n 24 text >lines
expect 0 "$MHA" prune -q -m "$encoder" --heads 0.0,1.1 -o small -f lines
expect 0 train --from small --teacher "$encoder" -f lines --eval text --steps 40 --rate 0.003 --batch 4 --length 64 -o near
below "$(step near 40 eval_loss)" "$(awk -v x="$(step near 0 eval_loss)" 'BEGIN { print x / 2 }')" 'states'
"$JSON_AT" settings.state_weight <near/training.json >out
has out 1
tokens=$(step near 40 tokens)
if [ "$tokens" -ge $((40 * 4 * 64)) ] || [ "$tokens" -lt $((40 * 4 * 3)) ]; then fail "padding must not be counted (got $tokens tokens)"; fi
expect 0 "$MHA" diff --json -m "$encoder" -m small -f text
before=$("$JSON_AT" texts.mean_cosine <out)
expect 0 "$MHA" diff --json -m "$encoder" -m near -f text
below "$before" "$("$JSON_AT" texts.mean_cosine <out)" 'the cosine similarity before training'
expect 0 train --from small --teacher "$encoder" --text-weight 1 -f lines --steps 2 --length 5 -o cut
has err '24 of 24 texts are longer than --length 5 and are truncated'
expect 0 "$MHA" embed -m near 'the number 5'

# Invalid combinations must be rejected.
refused 3 train --from small -f lines -o x
has err 'its training requires --teacher'
refused 2 train --from small --label-weight 1 -f lines -o x
has err '--label-weight requires --teacher'
refused 2 train --from small --teacher whole -f lines -o x
has err 'vocabulary of the teacher must have'
refused 3 train --from small --teacher "$encoder" --logit-weight 1 -f lines -o x
has err 'logits'
sed 'y/ehmnorst/qwuiypab/' text >shifted # the same number of tokens, but different tokens
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o shifted.bpe -f shifted
expect 0 train -q --shape gpt2:1x1x8 --tokenizer shifted.bpe -f shifted --length 16 --steps 1 -o stranger
refused 3 train --from pruned --teacher stranger -f text -o x
has err 'must have the tokens of the model'
refused 3 train --from small --teacher nowhere -f lines -o x
has err 'nowhere'
refused 2 train --from pruned --teacher whole --teacher-temperature 0 -f text -o x
[ ! -e x ] || fail 'a rejected command must not start training'
finish

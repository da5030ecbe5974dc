#!/bin/sh
# test_cli_train_dropout.sh - tests `mha train --dropout`, `--dtype bf16` and `--moments bf16`: each option must have an
# effect, and results must not depend on threads or interruptions.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
seq 1 60 | sed 's/.*/the number & comes before others, and after it some number waits/' >text
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o bpe -f text

# learn FOLDER OPTION...: trains for $steps steps and writes to FOLDER.
threads=1 seed=3 steps=12
learn() {
    to=$1
    shift
    expect 0 "$MHA" train -q --json -t $threads --shape gpt2:2x2x16 --tokenizer bpe -f text --length 16 --batch 4 --rate 0.01 --schedule constant \
        --warmup 0 --seed $seed --steps $steps -o "$to" "$@"
}
differ() {
    cmp -s "$1/model.safetensors" "$2/model.safetensors" && fail "$3: the weights must differ"
}

# Each kind of dropout must have an effect, 0 must have none, and --dropout must set all three kinds.
learn none
learn zero --dropout 0
same none/model.safetensors zero/model.safetensors '--dropout 0'
for place in embedding attention residual; do
    learn "$place" "--$place-dropout" 0.2
    differ none "$place" "--$place-dropout"
done
learn all --dropout 0.2
learn each --embedding-dropout 0.2 --attention-dropout 0.2 --residual-dropout 0.2
same all/model.safetensors each/model.safetensors 'all three by name'
learn but --dropout 0.2 --attention-dropout 0
learn two --embedding-dropout 0.2 --residual-dropout 0.2
same but/model.safetensors two/model.safetensors 'all but one'
seed=4
learn other --dropout 0.2
seed=3
differ all other '--seed'

# The held-out loss must be measured without dropout, so at step 0 it must not depend on --dropout.
learn measured --eval-share 0.2 --eval-every 12
sed -n 1p measured/training.jsonl | "$JSON_AT" eval_loss >before
learn dropped --eval-share 0.2 --eval-every 12 --dropout 0.5
sed -n 1p dropped/training.jsonl | "$JSON_AT" eval_loss >after
same before after 'loss on held-out text'

# In f32 and bf16, results must be bitwise identical for any number of threads and after an interruption.
for dtype in f32 bf16; do
    options="--dtype $dtype --dropout 0.1 --accumulate 2"
    # shellcheck disable=SC2086 # splits the variable into words
    {
        learn "whole.$dtype" $options
        threads=3
        learn "three.$dtype" $options
        threads=1 steps=5
        learn "part.$dtype" $options --recompute
        steps=12
    }
    expect 0 "$MHA" train -q -t 2 --resume --steps 12 -o "part.$dtype"
    same "whole.$dtype/model.safetensors" "three.$dtype/model.safetensors" "$dtype, 3 threads"
    same "whole.$dtype/model.safetensors" "part.$dtype/model.safetensors" "$dtype, stopped and resumed"
    "$JSON_AT" settings.dtype <"part.$dtype/training.json" >out
    has out "$dtype"
done
differ whole.f32 whole.bf16 '--dtype bf16'
awk -v a="$(sed -n 13p whole.f32/training.jsonl | "$JSON_AT" loss)" -v b="$(sed -n 13p whole.bf16/training.jsonl | "$JSON_AT" loss)" \
    'BEGIN { exit !(a > 1 && a / b < 1.02 && b / a < 1.02) }' || fail "the loss in bf16 must be close to the loss in f32: $(tail -n 1 whole.bf16/training.jsonl)"
expect 0 "$MHA" info --json -m whole.bf16
at dtype f32

# Moments in bf16: the state must store them in bf16, and --resume must reject the other type. The loss must be close to
# that of f32.
steps=12
learn moments --moments bf16 --accumulate 2 --dropout 0.1
threads=3
learn moments.three --moments bf16 --accumulate 2 --dropout 0.1
threads=1 steps=5
learn moments.part --moments bf16 --accumulate 2 --dropout 0.1
expect 0 "$MHA" train -q -t 2 --resume --steps 12 -o moments.part
for other in three part; do
    same moments/model.safetensors moments.$other/model.safetensors "--moments bf16, $other"
    same moments/training.safetensors moments.$other/training.safetensors "--moments bf16, $other: the state"
done
differ whole.f32 moments '--moments bf16'
[ $(($(wc -c <whole.f32/training.safetensors) * 10)) -gt $(($(wc -c <moments/training.safetensors) * 17)) ] ||
    fail 'a state with moments in bf16 must be little more than half as large'
awk -v a="$(sed -n 13p whole.f32/training.jsonl | "$JSON_AT" loss)" -v b="$(sed -n 13p moments/training.jsonl | "$JSON_AT" loss)" \
    'BEGIN { exit !(a > 1 && a / b < 1.02 && b / a < 1.02) }' || fail "the loss with moments in bf16 must be close to the loss with f32"
refused 2 "$MHA" train -q --resume --moments f32 --steps 14 -o moments
has err 'moments: --moments must be bf16, the type of the moments in the checkpoint (got f32)'
refused 2 "$MHA" train -q --resume --moments bf16 --steps 14 -o whole.f32
has err 'whole.f32: --moments must be f32, the type of the moments in the checkpoint (got bf16)'
refused 2 "$MHA" train --shape gpt2:1x1x8 --tokenizer bpe -f text --moments f16 -o x
has err '--moments must be one of f32, bf16 (got "f16")'

# Errors of the library must be reported with the name of the option.
for share in 1 -0.1 nan x; do
    refused 2 "$MHA" train --shape gpt2:1x1x8 --tokenizer bpe -f text "--residual-dropout=$share" -o x
    has err '--residual-dropout'
done
refused 2 "$MHA" train --shape gpt2:1x1x8 --tokenizer bpe -f text --dtype f16 -o x
has err '--dtype must be one of f32, bf16 (got "f16")'
echo '{"dropout": 1}' >wrong.json
refused 3 "$MHA" train --config wrong.json --shape gpt2:1x1x8 --tokenizer bpe -f text -o x
has err '"dropout" must be a number from 0 to 0.99'
finish

#!/bin/sh
# Checks the recorded results of the tiny checkpoints with `mha verify --golden` on every instruction set of this
# machine.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
requires_golden

for isa in $("$MHA" --version | sed -n 's/^this CPU has: *//p'); do
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$data/models" -m "$data/models" -q
    echo "$isa: $(tail -n 1 out)"
    [ "$(tail -n 1 out)" = "151 passed, 0 failed, 0 unsupported" ] || fail "$isa: the last line must be 151 passed, 0 failed, 0 unsupported: $(cat out)"
    # Checks every decoder family, rotation and weight storage: from ids to hidden states, maps, logits and greedy text.
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$data/families" -m "$data/families" -q
    [ "$(tail -n 1 out)" = "32 passed, 0 failed, 0 unsupported" ] || fail "$isa: the last line must be 32 passed, 0 failed, 0 unsupported: $(cat out)"
    # Checks encoder-decoders, with tokenizers and gradients.
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$data/seq2seq" -m "$data/seq2seq" -q
    [ "$(tail -n 1 out)" = "178 passed, 0 failed, 0 unsupported" ] || fail "$isa: the last line must be 178 passed, 0 failed, 0 unsupported: $(cat out)"
    # Checks models of images, with gradients.
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$data/vision" -m "$data/vision" -q
    [ "$(tail -n 1 out)" = "8 passed, 0 failed, 0 unsupported" ] || fail "$isa: the last line must be 8 passed, 0 failed, 0 unsupported: $(cat out)"
    # Checks the other families, with gradients.
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$data/families2" -m "$data/families2" -q
    [ "$(tail -n 1 out)" = "84 passed, 0 failed, 0 unsupported" ] || fail "$isa: the last line must be 84 passed, 0 failed, 0 unsupported: $(cat out)"
    # Checks weights that are stored as codes with scales, with gradients.
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$data/quantized" -m "$data/quantized" -q
    [ "$(tail -n 1 out)" = "9 passed, 0 failed, 0 unsupported" ] || fail "$isa: the last line must be 9 passed, 0 failed, 0 unsupported: $(cat out)"
done
refused 2 "$MHA" verify --golden "$data/models"

# With a different model, results must differ and the command must fail.
mkdir swapped
cp -r "$data/models/bert-mlm-tiny" swapped/bert-tiny
cp -r "$data/models/bert-tiny" swapped/bert-mlm-tiny
cp -r "$data/models/bert-mlm-tiny-hubnames" "$data/models/gpt2-tiny" "$data/models/gemma2-tiny" swapped
expect 3 "$MHA" verify --golden "$data/models" -m swapped # the shapes do not match the recording
refused 3 "$MHA" verify --golden "$data/models" -m "$work"

# A rotation that differs from the recorded rotation must be detected.
cp -r "$data/families" turned
cp turned/llama-linear/config.json turned/llama-yarn/config.json
expect 4 "$MHA" verify --golden turned -m turned
finish

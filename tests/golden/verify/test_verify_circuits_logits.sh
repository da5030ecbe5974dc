#!/bin/sh
# Checks recorded logit attributions, logit lenses and circuits from weights with `mha verify --golden`. The counts of passed
# and unsupported cases must be exact, and a changed record must fail.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
requires_golden

expect 0 "$MHA" verify --golden "$data/circuits-logits" -m "$data/models" --strict --json -q
at kind circuits
at passed 96
at failed 0
at refused 0

# A tolerance below the rounding of float32 must fail by name, with exit status 4.
mkdir tight
cp "$data"/circuits-logits/*.safetensors tight
tr -d '\n' <"$data/circuits-logits/index.json" |
    sed 's/\("dla.heads": {[^}]*"abs_tolerance": \)[-0-9.e]*/\11e-12/g; s/\("folded.composition_k": {[^}]*"abs_tolerance": \)[-0-9.e]*/\11e-14/g' >tight/index.json
expect 4 "$MHA" verify --golden tight -m "$data/models" -q
has out 'builtin-words dla.heads'
has out 'gpt2-tiny folded.composition_k'
finish

#!/bin/sh
# Checks recorded results of single operations with `mha verify --golden` on every instruction set of this machine:
# torch.nn.MultiheadAttention on the operator, norms, activations, cross entropy, rotation. Unsupported operations must
# be named.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
requires_golden

for isa in $("$MHA" --version | sed -n 's/^this CPU has: *//p'); do
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$data/ops"
    echo "$isa: $(tail -n 1 out)"
    tail -n 1 out | grep -q '^49 passed, 0 failed' || fail "$isa: 49 cases must pass: $(cat out)"
    grep -q '^torch_mha  *15 ' out || fail "15 cases of torch_mha must pass: $(cat out)"
done
# Unsupported results must be counted; with --strict, they must be failures.
expect 4 "$MHA" verify --golden "$data/ops" --strict
has err 'results of kind "logits_processing" are not supported'

# With a changed description, results must differ and the command must fail. A file without a required tensor must be
# rejected.
mkdir changed
cp "$data"/ops/* changed
sed 's/"eps": 1e-05/"eps": 0.5/' "$data/ops/index.json" >changed/index.json
expect 4 "$MHA" verify --golden changed
has out 'layer_norm/dx'
cp changed/rope.safetensors changed/norms.safetensors
refused 3 "$MHA" verify --golden changed
finish

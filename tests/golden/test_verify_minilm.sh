#!/bin/sh
# The recorded sentences of the real all-MiniLM-L6-v2 through `mha verify --golden`; skipped where its weights are not.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

[ -d "$minilm" ] || skip "MiniLM is not on this machine (./run fetch minilm)"
for isa in $("$MHA" --version | sed -n 's/^this CPU has: *//p'); do
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$data/minilm" -m "$minilm" -q
    echo "$isa: $(tail -n 1 out)"
    [ "$(tail -n 1 out)" = "14 passed, 0 failed, 0 refused" ] || fail "$isa: $(cat out)"
done
finish

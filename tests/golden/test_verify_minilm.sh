#!/bin/sh
# The recorded sentences of the real all-MiniLM-L6-v2 through `mha verify --golden`; skipped where its weights are not. Those of
# all lengths and maps are beside the project, where they are at hand; the copies here leave the largest out.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

[ -d "$minilm" ] || skip "MiniLM is not on this machine (./run fetch minilm)"
for isa in $("$MHA" --version | sed -n 's/^this CPU has: *//p'); do
    for golden in "$data/minilm" "$here/../shared/golden/minilm"; do
        [ -d "$golden" ] || continue
        expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$golden" -m "$minilm" -q
        echo "$isa: $(tail -n 1 out)"
        want=$([ -f "$golden/long.safetensors" ] && echo 14 || echo 13)
        [ "$(tail -n 1 out)" = "$want passed, 0 failed, 0 refused" ] || fail "$isa: $(cat out)"
    done
done
finish

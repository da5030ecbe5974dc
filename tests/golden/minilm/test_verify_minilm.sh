#!/bin/sh
# Checks the recorded sentences of the real all-MiniLM-L6-v2 with `mha verify --golden`; skipped if its weights are not
# installed. test_conformance_shared.sh tests the longest sentences and maps, which are not in this repository.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
requires_golden

[ -d "$minilm" ] || skip "MiniLM is not installed (./run fetch minilm)"
for isa in $("$MHA" --version | sed -n 's/^this CPU has: *//p'); do
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$data/minilm" -m "$minilm" -q
    echo "$isa: $(tail -n 1 out)"
    [ "$(tail -n 1 out)" = '13 passed, 0 failed, 0 unsupported' ] || fail "$isa: the last line must be 13 passed, 0 failed, 0 unsupported: $(cat out)"
done
finish

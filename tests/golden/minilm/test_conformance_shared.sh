#!/bin/sh
# Verifies recorded results that are too large for this repository: every sentence and map of all-MiniLM-L6-v2 on every
# ISA. The recordings are in the folder MHA_SHARED, or from `shared` next to the source tree; the test is skipped if
# both are missing.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
requires_golden

golden=${MHA_SHARED:-$here/../shared}/golden/minilm
[ -f "$golden/long.safetensors" ] || skip "$golden does not exist (set MHA_SHARED to the folder of the large recordings)"
[ -d "$minilm" ] || skip "MiniLM is not installed (./run fetch minilm)"
for isa in $("$MHA" --version | sed -n 's/^this CPU has: *//p'); do
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$golden" -m "$minilm" -q
    echo "$isa: $(tail -n 1 out)"
    [ "$(tail -n 1 out)" = '14 passed, 0 failed, 0 unsupported' ] || fail "$isa: the last line must be 14 passed, 0 failed, 0 unsupported: $(cat out)"
done
finish

#!/bin/sh
# Rebuilds the WebAssembly module with tools/wasm.sh: the module in share/mha/live must be the same, to the byte. After a change of the
# sources, `tools/wasm.sh --install` replaces it.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

run_once sh "$here/tools/wasm.sh"
[ "$status" != 77 ] || skip "$(sed 's/^skipped: //' out)"
[ "$status" = 0 ] || fail "tools/wasm.sh must succeed: $(cat out err)"
gzip -dc "$here/share/mha/live/live.wasm.gz" >stored.wasm
cmp stored.wasm "$here/build/wasm/live.wasm" || fail "share/mha/live/live.wasm.gz must be built from these sources: run tools/wasm.sh --install"
finish

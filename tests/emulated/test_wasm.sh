#!/bin/sh
# Tests share/mha/live/live.wasm.gz, the library as a WebAssembly module, under node (wasm.mjs).
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

command -v node >/dev/null 2>&1 || skip "node is not installed"
module=$here/share/mha/live/live.wasm.gz
expect 0 sh -c "cd '$here/share/mha/live' && sha256sum --check --quiet live.wasm.gz.sha256"
expect 0 node "$here/tests/emulated/wasm.mjs" "$module" "$work"
cat out
finish

#!/bin/sh
# test_cli_hostile.sh - the program over a corpus of hostile files: refused with a sentence and exit 3, in bounded time and memory.
# Configs and sharded models have tests of their own.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
command -v python3 >/dev/null || skip 'python3 is not there'
sanitizer=
if grep -qa __asan_init "$MHA"; then sanitizer=--sanitizer; fi
python3 "$here/tests/cli/run_hostile.py" "$data/hostile" --refuse-codes 3 $sanitizer \
    --tokenizer "$MHA tokenize -m {model} -f {text}" --safetensors "$MHA info {file}" --npy "$MHA info {file}" --fsobj "$MHA info -m {model}" || fail 'see above'
finish

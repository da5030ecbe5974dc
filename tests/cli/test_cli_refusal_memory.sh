#!/bin/sh
# test_cli_refusal_memory.sh - the program must reject files of the maximum size with an error at the end (headers,
# configs, indexes, tokenizers, JSON of options, texts) using at most 256 MiB of memory, including the file.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

command -v python3 >/dev/null || skip 'python3 is not installed'
if grep -qaE '__(asan|tsan|msan)_init' "$MHA"; then skip 'the program is built with a sanitizer, which requires more memory'; fi
mkdir cases
python3 "$here/tests/cli/refusals.py" "$MHA" "$tiny" cases || fail 'all cases of refusals.py must pass'
finish

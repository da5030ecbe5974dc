#!/bin/sh
# test_cli_refusal_memory.sh - files as large as they may be and wrong at their end: headers, configurations, indexes,
# tokenizers, the JSON of options and texts are refused within 256 MiB of memory, the file included.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

command -v python3 >/dev/null || skip 'python3 is not there'
if grep -qaE '__(asan|tsan|msan)_init' "$MHA"; then skip 'a sanitizer has memory of its own'; fi
mkdir cases
python3 "$here/tests/cli/refusals.py" "$MHA" "$tiny" cases || fail 'see above'
finish

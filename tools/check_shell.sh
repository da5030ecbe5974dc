#!/bin/sh
# check_shell.sh - the shell scripts are POSIX (.ci/run: bash) and free of what shellcheck warns of. Skipped (77) without it.
set -eu
cd "$(dirname -- "$0")/.."
command -v shellcheck >/dev/null || {
    echo 'skipped: shellcheck is not installed'
    exit 77
}
shellcheck -x run check .ci/run cmake/*.sh tools/*.sh tests/*.sh tests/*/*.sh

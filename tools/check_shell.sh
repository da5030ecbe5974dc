#!/bin/sh
# check_shell.sh - checks that the shell scripts are POSIX (.ci/run: bash) and pass shellcheck. Exits with status 77 (skipped) if shellcheck
# is not installed.
set -eu
cd "$(dirname -- "$0")/.."
command -v shellcheck >/dev/null || {
    echo 'skipped: shellcheck is not installed'
    exit 77
}
shellcheck -x run check .ci/run cmake/*.sh tools/*.sh packaging/*.sh tests/*.sh tests/*/*.sh

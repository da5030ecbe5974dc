#!/bin/sh
# with_python.sh - runs a Python test: with_python.sh SCRIPT [ARGUMENT...]
#
# Uses the Python in MHA_PYTHON (set by ./check --all), or python3. Without NumPy, the test is skipped; a script that requires other modules
# skips itself if a module is missing.
python=${MHA_PYTHON:-python3}
"$python" -c 'import numpy' >/dev/null 2>&1 || {
    echo "skipped: $python has no NumPy (./check --all installs it)"
    exit 77
}
exec "$python" "$@"

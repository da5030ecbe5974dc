#!/bin/sh
# with_python.sh - runs a Python test: with_python.sh SCRIPT [ARGUMENT...]
#
# Takes the Python that MHA_PYTHON names (./check --all sets it), else python3. Without NumPy there is nothing to run;
# a script that needs more modules skips by itself.
python=${MHA_PYTHON:-python3}
"$python" -c 'import numpy' >/dev/null 2>&1 || {
    echo "skipped: $python with NumPy is not there (./check --all gets it)"
    exit 77
}
exec "$python" "$@"

#!/bin/sh
# run_example.sh - runs an example for ctest. If the example fails, this script prints a line that matches the test's
# FAIL_REGULAR_EXPRESSION, because ctest ignores the exit status of a test with a PASS_REGULAR_EXPRESSION.
#
#     run_example.sh PROGRAM [ARGUMENT...]
"$@"
status=$?
[ $status = 0 ] || echo "failed: $1 ended with exit status $status"
exit $status

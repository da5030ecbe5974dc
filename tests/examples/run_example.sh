#!/bin/sh
# run_example.sh EXPECTED PROGRAM [ARGUMENT...] - runs an example, and prints its output. Each line of the file EXPECTED
# is an extended regular expression; they must match lines of the output in this order.
set -eu
expected=$1
shift
output=$("$@")
printf '%s\n' "$output"
printf '%s\n' "$output" | awk -v expected="$expected" '
    BEGIN { while ((getline line < expected) > 0) wanted[++count] = line }
    found < count && $0 ~ wanted[found + 1] { found++ }
    END {
        if (!count) print "failed: " expected " is missing or empty"
        else if (found < count) print "failed: no line matches " wanted[found + 1]
        exit !count || found < count
    }'

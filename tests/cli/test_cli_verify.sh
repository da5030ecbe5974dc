#!/bin/sh
# test_cli_verify.sh - `mha verify` without a folder must compare every instruction set with a double-precision
# reference; usage errors must be rejected.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

expect 0 "$MHA" verify -q
cat out
tail -n 1 out | grep -q '^[1-9][0-9]* passed, 0 failed, 0 unsupported$' || fail "the last line must have the totals"
for isa in $("$MHA" --version | sed -n 's/^this CPU has: *//p'); do
    grep -v '[0-9]\.[0-9]' out | grep -Eq "^ .* $isa( |\$)" || fail "the table must have a column for $isa"
done
[ ! -s err ] || fail "-q must suppress all messages (got $(cat err))"

# --isa must limit the table to the given instruction sets.
expect 0 "$MHA" verify -q --isa scalar
[ "$(sed -n 2p out | wc -w)" = 1 ] || fail "the table of --isa scalar must have one column"
expect 0 "$MHA" verify -q --json --isa scalar
at failed 0
at kind self

refused 2 "$MHA" verify extra
refused 2 "$MHA" verify -m minilm

# A build without recorded results must not have the options that read them.
if [ "${MHA_CONFORMANCE:-1}" = 0 ]; then
    refused 2 "$MHA" verify --golden /nonexistent
    expect 0 "$MHA" verify --help
    has_not out --golden
    has_not out --lm
else
    refused 3 "$MHA" verify --golden /nonexistent
fi
finish

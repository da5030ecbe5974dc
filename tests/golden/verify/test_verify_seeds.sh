#!/bin/sh
# Checks the recorded walk-throughs with `mha verify --golden` on every instruction set of this machine: each case from
# its stored tensors and from its seed only, every printed value, and the tables of counts.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
requires_golden

# The number of printed values in the walk-throughs.
printed=$(sed -n 's/^ *"values": \[\(.*\)\],*$/\1/p' "$data/seeds/index.json" | tr ',' '\n' | grep -c .)
[ "$printed" -eq 763 ] || fail "the index must have 763 printed values (got $printed)"
for isa in $("$MHA" --version | sed -n 's/^this CPU has: *//p'); do
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$data/seeds" --strict -q
    echo "$isa: $(grep 'printed numbers' out), $(tail -n 1 out)"
    grep -q "^$printed printed values compared$" out || fail "$isa: $printed printed values must be compared: $(cat out)"
    [ "$(tail -n 1 out)" = "89 passed, 0 failed, 0 unsupported" ] || fail "$isa: the last line must be 89 passed, 0 failed, 0 unsupported: $(cat out)"
done

# The JSON output must contain the same counts as the text output.
expect 0 "$MHA" verify --golden "$data/seeds" --json -q
at kind seeds
at printed "$printed"
at groups.stored.passed 43
at groups.seed.passed 43
at groups.tables.passed 3

# Each edit changes one value, which a case must detect. The check that does not read the value must still pass.
notices() { # WHAT SED CASE PASSED FAILED: CASE must detect the edit SED of WHAT, with these counts
    mkdir -p changed
    sed -e "$2" "$data/seeds/index.json" >changed/index.json
    ! cmp -s "$data/seeds/index.json" changed/index.json || fail "$1 must change the file"
    cp "$data"/seeds/*.safetensors changed
    expect 4 "$MHA" verify --golden changed -q
    [ "$(grep -c "^FAIL .* $3" out)" -eq "$5" ] || fail "$1: $5 cases of $3 must fail: $(cat out)"
    [ "$(tail -n 1 out)" = "$4 passed, $5 failed, 0 unsupported" ] || fail "$1: $4 cases must pass and $5 must fail: $(tail -n 1 out)"
    rm -r changed
}
notices "a printed digit" 's/"-0.5829", /"-0.5830", /' s003_mha 88 1
notices "a seed" 's/"seed": 124$/"seed": 125/' s000_mha_qkv_bias 88 1
notices "an angle" 's/"rope_base": 10000.0/"rope_base": 100.0/' s004_rotary 81 8
notices "a count" 's/"total": 16384,/"total": 16385,/' s002_analyze_parameters 88 1

# An invalid folder must be rejected with a message and without a result.
mkdir broken
cp "$data"/seeds/*.safetensors broken
for fault in 's/"op": "rand",/"op": "ran",/' 's/"d_in": 3,/"d_in": 4,/' 's/"file": "s000_stack.safetensors"/"file": "..\/x"/' \
    's/"heads": 2,/"heads": "2",/' 's/"shape": \[3, 2\]/"shape": [3, 1]/'; do
    sed -e "$fault" "$data/seeds/index.json" >broken/index.json
    ! cmp -s "$data/seeds/index.json" broken/index.json || fail "$fault must change the file"
    refused 3 "$MHA" verify --golden broken
done
finish

#!/bin/sh
# Checks the recorded cases of the operator with `mha verify --golden` on every instruction set of this machine. The
# counts of passed and unsupported cases must be exact.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
requires_golden

for isa in $("$MHA" --version | sed -n 's/^this CPU has: *//p'); do
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$data/attention" -q
    echo "$isa: $(tail -n 1 out)"
    [ "$(tail -n 1 out)" = "212 passed, 0 failed, 0 unsupported" ] || fail "$isa: the last line must be 212 passed, 0 failed, 0 unsupported: $(cat out)"
done

# 16-bit outputs reduce the accuracy of gradients, for which the index has the tolerance "atol_rounded_out". Without it,
# the errors of these gradients must exceed the tolerances of float32.
mkdir plain
cp "$data"/attention-half/*.safetensors plain
sed 's/, "atol_rounded_out": {[^}]*}//' "$data/attention-half/index.json" >plain/index.json
for isa in $("$MHA" --version | sed -n 's/^this CPU has: *//p'); do
    expect 0 env "MHA_ISA=$isa" "$MHA" verify --golden "$data/attention-half" -q
    [ "$(tail -n 1 out)" = "2 passed, 0 failed, 0 unsupported" ] || fail "$isa: the last line must be 2 passed, 0 failed, 0 unsupported: $(cat out)"
    expect 4 env "MHA_ISA=$isa" "$MHA" verify --golden plain -q
    [ "$(tail -n 1 out)" = "0 passed, 2 failed, 0 unsupported" ] || fail "$isa: the last line must be 0 passed, 2 failed, 0 unsupported: $(cat out)"
done

# The JSON output must contain the same counts as the text output.
expect 0 "$MHA" verify --golden "$data/attention" --strict --json -q
at kind attention
at passed 212
at failed 0
at refused 0
at groups.packed.passed 10

# If a tolerance cannot be met, the case must fail by name, with exit status 4.
mkdir tight
cp "$data/attention/len16_none.safetensors" tight
{
    echo '{"cases": ['
    grep '"name": "len16_none"' "$data/attention/index.json" |
        sed -e 's/,$//' -e 's/"atol": {"out": [^,]*/"atol": {"out": 1e-30/'
    echo ']}'
} >tight/index.json
expect 4 "$MHA" verify --golden tight
grep -q '^FAIL  lengths  len16_none  out  error .*  limit 1e-30$' out || fail "the output must contain a line for the case (got $(cat out))"
[ "$(tail -n 1 out)" = "0 passed, 1 failed, 0 unsupported" ] || fail "the last line must be 0 passed, 1 failed, 0 unsupported: $(cat out)"

# An invalid folder must be rejected with a message and without a result.
mkdir broken
cp tight/len16_none.safetensors broken
for fault in 's/"q_len": 16/"q_len": 15/' 's/"file": "[^"]*"/"file": "..\/index.json"/' 's/"batch": 2/"batch": "x"/' \
    's/"batch": 2/"batch": 1/' 's/"F32"/"F33"/' 's/"window": \[-1, -1\]/"window": [-1]/' 's/"cases"/"kases"/' 's/]}$/]/'; do
    sed -e "$fault" tight/index.json >broken/index.json
    ! cmp -s tight/index.json broken/index.json || fail "$fault must change the file"
    refused 3 "$MHA" verify --golden broken
done

# A folder with keys that are not checked must be rejected; the message must name file, key and value.
while read -r fault words; do
    sed -e "$fault" tight/index.json >broken/index.json
    ! cmp -s tight/index.json broken/index.json || fail "$fault must change the file"
    refused 3 "$MHA" verify --golden broken
    grep -qF "broken/index.json: $words" err || fail "$fault: the message must contain $words: $(cat err)"
done <<'EOF'
s/"cases"/"format":2,"cases"/  "format" must be 1 (got 2)
s/"cases"/"format":"1","cases"/  "format" must be 1 (got "1")
s/"cases"/"caces":[],"cases"/ unknown key "caces" = []
s/"q_len":/"q_lens":[3],"q_len":/ cases[] "len16_none": unknown key "q_lens" = [3]
s/"bhld"/"blhd"/ cases[].layout "len16_none": unknown value "blhd"
s/"atol":/"atol_rounded_out":{"dv":1},"atol":/ cases[].atol_rounded_out "len16_none": unknown key "dv" = 1
s/"outputs":.\["/&dgates","/ cases[].outputs "len16_none": unknown value "dgates"
s/"inputs":.\["/&gates","/ cases[].inputs "len16_none": unknown value "gates"
EOF
finish

#!/bin/sh
# test_cli_embed.sh - tests `mha embed`: shapes, files and vectors. Vectors must not depend on other texts or on
# threads.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
embed() { "$MHA" embed -m "$tiny" "$@"; }

expect 0 embed --json 'wait for the tank'
at text 'wait for the tank'
at embedding.# 48
cp out alone
expect 0 embed --json 'a' 'wait for the tank' 'they said that you keep the count of the level, and then again'
[ "$(wc -l <out)" = 3 ] || fail 'three texts must give three objects'
sed -n 2p out >among
same alone among 'a vector must not depend on other texts'
for threads in 1 2 3; do
    expect 0 embed -t $threads --json 'wait for the tank'
    same out alone "$threads threads"
done
expect 0 embed --pool cls --json 'wait for the tank'
cmp -s out alone && fail '--pool cls must have an effect'
cp out first

# the pooling of a sentence-transformers folder is the default, and another kind of pooling is refused by name
cp -R "$tiny" sentence
mkdir sentence/1_Pooling
echo '[{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]' >sentence/modules.json
echo '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}' >sentence/1_Pooling/config.json
expect 0 "$MHA" embed -m sentence --json 'wait for the tank'
same first out 'the pooling of the folder'
expect 0 "$MHA" embed -m sentence --pool mean --json 'wait for the tank'
same alone out 'the pooling of --pool'
echo '{"pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": false}' >sentence/1_Pooling/config.json
refused 3 "$MHA" embed -m sentence --json 'wait for the tank'
has err '1_Pooling/config.json: pooling_mode must be cls or mean for vectors of texts (got lasttoken)'
expect 0 "$MHA" info -m sentence
expect 0 embed --no-normalize --json 'wait for the tank'
cmp -s out alone && fail '--no-normalize must have an effect'
expect 0 embed one two
has out 'cosine similarity'

# Truncation of a text must be reported without -v, but not with -q.
long=$(printf 'the %.0s' $(seq 120))
expect 0 embed --json the "$long"
has err 'text 2 of 2: 122 tokens, 26 were truncated; the model accepts 96'
expect 0 embed -q --json the "$long"
[ ! -s err ] || fail '-q must suppress the message on truncation'

# A file must be written atomically, must be overwritten only with --force, and no temporary file may remain.
expect 0 embed -o e.npy one two
[ ! -s out ] || fail 'with -o, stdout must be empty'
[ "$(wc -c <e.npy)" = $((128 + 2 * 48 * 4)) ] || fail "e.npy must have a header of 128 bytes and 2 x 48 floats (got $(wc -c <e.npy) bytes)"
expect 0 "$MHA" info e.npy --json
at tensors.0.shape '[2,48]'
cp e.npy before
refused 2 embed -o e.npy three
same e.npy before 'an existing file must not change'
expect 0 embed -o e.npy --force three
cmp -s e.npy before && fail '--force must overwrite the file'
expect 0 embed -o e.json 'wait for the tank'
same e.json alone '-o FILE.json'

# With 16-bit and 8-bit weights, the result must differ from the f32 result; its first element must differ by less than
# 0.02.
first() { sed 's/.*"embedding": \[\([-0-9.e]*\),.*/\1/' "$1"; }
for dtype in bf16 f16 int8; do
    expect 0 embed --json --dtype $dtype 'wait for the tank'
    cmp -s out alone && fail "--dtype $dtype must differ from f32"
    echo "$(first out) $(first alone)" | awk '{ d = $1 - $2; exit !(d < 0.02 && d > -0.02) }' ||
        fail "--dtype $dtype: the first element must be $(first alone) within 0.02 (got $(first out))"
done
expect 0 embed --json --dtype f32 'wait for the tank'
same out alone '--dtype f32'
refused 2 embed --dtype f64 one
has err 'f32, bf16, f16, int8'

refused 2 embed -o e.txt one
refused 2 embed --pool max one
refused 1 embed -o no/such/folder/e.npy one
[ "$(find . -name '*.tmp*' | wc -l)" = 0 ] || fail 'no temporary file may remain'

# After signal n, the exit status must be 128 + n, and stdout must be empty. (The command is started by timeout, because a
# shell without job control starts background jobs with SIGINT ignored.)
for pair in INT:130 TERM:143 HUP:129; do
    status=0
    sleep 3 | timeout --foreground --preserve-status -s "${pair%:*}" 0.3 "$MHA" embed -m "$tiny" -f - >out 2>err || status=$?
    [ "$status" = "${pair#*:}" ] || fail "after SIG${pair%:*}: exit status must be ${pair#*:} (got $status)"
    [ ! -s out ] || fail "after SIG${pair%:*}: stdout must be empty"
done
finish

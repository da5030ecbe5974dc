#!/bin/sh
# test_cli_live.sh - tests `mha live`: the page must be reproducible and contain texts only as data; unsuitable models, texts and
# options are refused. tests/browser/test_live.py opens the page.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

expect 0 "$MHA" live -o page.html
has err 'page.html: '
[ "$(wc -c <page.html)" -le 2200000 ] || fail "the page must have at most 2200000 bytes (got $(wc -c <page.html))"
expect 0 "$MHA" live -q -o again.html
same page.html again.html 'two runs'
has page.html "script-src 'wasm-unsafe-eval' 'sha256-"
expect 0 "$MHA" live -q -o - '</script><script>alert(1)</script>'
[ "$(grep -c 'alert(1)</script>' out)" = 0 ] || fail "a text must not end the block of data"
has out 'alert(1)\u003c/script\u003e'
refused 2 "$MHA" live -o page.html
expect 0 "$MHA" live -q -o page.html --force -m "$data/models/gpt2-tiny" 'Every morn'

refused 2 "$MHA" live 'Every morn'
has err 'missing -o FILE.html'
refused 2 "$MHA" live -o two.html one two
has err 'at most one text is required (got 2)'
mkdir empty
refused 3 "$MHA" live -o none.html -m empty
cp -r "$data/hostile/base/llama" sharded
rm sharded/model.safetensors
refused 3 "$MHA" live -o none.html -m sharded
cp "$data"/hostile/base/shards/* sharded
cp "$data/hostile/sharded/shard-01-control/model.safetensors.index.json" sharded
expect 0 "$MHA" live -q -o sharded.html -m sharded
has sharded.html 'model-00001-of-00002.safetensors'
has sharded.html 'model-00002-of-00002.safetensors'
expect 0 "$MHA" convert -q "$tiny" model.gguf
refused 3 "$MHA" live -o none.html -m model.gguf
has err 'model.gguf: the model of a live page must be a checkpoint folder (got a GGUF file)'
refused 3 "$MHA" report --live -o none.html -m model.gguf 'Every morn'
has err 'model.gguf: the model of a live page must be a checkpoint folder (got a GGUF file)'

# A report that compares two models contains the live page of the first model.
expect 0 "$MHA" report -q --live --compare "$data/models/gpt2-tiny" -o compared.html 'Every morn'
has compared.html '\"model\":\"builtin\"'

# ---- the state of another page ----
expect 0 "$MHA" live -q --state '#text=Count%20from%202&gates=0.7:0&head=0.7' -o state.html
has state.html '"state":"text=Count%20from%202\u0026gates=0.7:0\u0026head=0.7"'
expect 0 "$MHA" live -q --state 'file:///a/live.html#text=a&head=0.1' -o address.html
has address.html '"state":"text=a\u0026head=0.1"'
refused 2 "$MHA" live --state '#text=a' -o both.html 'a text'
has err 'must not be given'
for state in '' '#head=0.1' '#text=%E0%A4' '#text=%4' '#text=a b' '#text=<b>' '#text="' '#text=é' '#text=%ED%A0%80' '#text' \
    '#text=a&corrupted=%FF' '#text=a&view=%C3' '#text=a&head=0.1&text=b' '#head=0.1&text=a&head=0.2'; do
    refused 2 "$MHA" live --state "$state" -o refused.html
    has err '--state'
done

refused 2 "$MHA" live --state '#text=a&corrupted=%FF' -o refused.html
has err '--state must have values in UTF-8 (got "corrupted=%FF")'
refused 2 "$MHA" live --state '#head=0.1&text=a&head=0.2' -o refused.html
has err '--state must not repeat a name (got "head=0.2")'

# ---- a program without its data folder ----
mkdir alone
cp "$MHA" alone/mha
if ! alone/mha info -q -m builtin >/dev/null 2>&1; then # no installed version has the folder
    refused 1 alone/mha live -m "$data/models/gpt2-tiny" -o alone.html
    has err 'live.wasm.gz, the library of the page, must be installed in share/mha/live'
fi
finish

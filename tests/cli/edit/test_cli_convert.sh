#!/bin/sh
# test_cli_convert.sh - tests `mha convert`: a model that is copied to a GGUF file and back must have the same tokens and
# outputs, and what a format cannot express must be refused without a file.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

text='Every morning the small house wakes up.'
expect 0 "$MHA" convert "$tiny" model.gguf
has err 'model.gguf: written'
expect 0 "$MHA" convert model.gguf folder
for model in "$tiny" model.gguf folder; do
    expect 0 "$MHA" tokenize -m "$model" "$text"
    cat out >>tokens
    expect 0 "$MHA" embed -m "$model" --json "$text"
    grep -v '"model"' out >"embedding.$(basename "$model")"
done
[ "$(sort tokens | uniq -c | awk '$1 != 3' | wc -l)" = 0 ] || fail 'tokens must be equal in both formats'
cmp embedding.bert-tiny embedding.model.gguf
# transformers rejects a list of end tokens in the config.json of some encoders.
! grep -q eos_token_id folder/config.json || fail 'an encoder without an end token must have no eos_token_id'
expect 0 "$MHA" convert -q builtin decoder.gguf
expect 0 "$MHA" convert -q decoder.gguf decoder
grep -q '"eos_token_id": *[0-9]' decoder/config.json || fail 'the only end token must be a number'
cmp embedding.bert-tiny embedding.folder || fail 'embeddings must be equal in both formats'

expect 0 "$MHA" convert --dtype int8 "$tiny" small.gguf
expect 0 "$MHA" info -m small.gguf --json
at family bert

refused 1 "$MHA" convert "$tiny" model.gguf
expect 0 "$MHA" convert --force "$tiny" model.gguf

# The destination must not be the source, under any name.
cp model.gguf before.gguf
ln -s model.gguf link.gguf
for name in model.gguf ./model.gguf link.gguf; do
    refused 2 "$MHA" convert --force model.gguf $name
    has err "DEST must not be an input (got \"$name\", the file read by SRC)"
done
same before.gguf model.gguf
cp -R "$tiny" own
refused 2 "$MHA" convert --force own ../"${work##*/}"/own
refused 2 "$MHA" convert "$tiny"
refused 2 "$MHA" convert --dtype int8 "$tiny" other
refused 2 "$MHA" convert --dtype q4 "$tiny" other.gguf
refused 3 "$MHA" convert "$data/models/bert-mlm-tiny" other.gguf
has err 'in a GGUF file'
cp -R "$data/models/gpt2-tiny" spaced
chmod -R u+w spaced
sed -i 's/"add_prefix_space": *false/"add_prefix_space": true/' spaced/tokenizer.json
refused 3 "$MHA" convert spaced other.gguf
has err 'mha convert: spaced/tokenizer.json: pre_tokenizer must be that of'
[ ! -e other.gguf ] || fail 'a refused model must not be written'
head -c 3000 model.gguf >cut.gguf
refused 3 "$MHA" info -m cut.gguf
has err 'cut.gguf: '
finish

#!/bin/sh
# test_cli_tokenizer.sh - tests `mha tokenizer train`: text sources, options, the saved folder, and invalid input.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
train() { "$MHA" tokenizer train "$@"; }

printf 'the head that looks at the first token\n\nthe heads, the tokens; nai\314\210ve\n' >one
printf 'the last line has no end' >two

# For both types, the program must load the folder, and the first ids must be special tokens.
expect 0 train --vocab-size 290 --json -o bpe -f one -f two
at type bpe
at tokens 272
at characters 256
at merges 15
at lines 4
at words 26
at bytes "$(cat one two | wc -c)"
has err 'stopped at 272 tokens'
for name in tokenizer.json tokenizer_config.json special_tokens_map.json vocab.json merges.txt; do [ -s "bpe/$name" ] || fail "bpe/$name must exist"; done
has bpe/merges.txt '#version: 0.2'
expect 0 "$MHA" tokenize --json --decode -m bpe 'the head <|endoftext|> that'
at decoded 'the head <|endoftext|> that'
at ids.2 "$("$JSON_AT" ids.2 <out)"
has out '"<|endoftext|>"'
expect 0 train --type wordpiece --lowercase --vocab-size 60 --min-frequency 1 --special '<tool>' --special '<end>' --json -o wp -f one
at tokens 60
expect 0 "$MHA" tokenize --json -m wp 'The HEAD<end>'
at ids.0 2
at tokens.1 the
at tokens.3 '<end>'
at ids.3 6
[ "$(sed -n 1p wp/vocab.txt)" = '[PAD]' ] || fail 'vocab.txt must begin with [PAD]'

# The same text from files, stdin or arguments, with any number of threads, must give the same tokenizer.
expect 0 train -q --vocab-size 290 -o more -f one two
cmp -s bpe/tokenizer.json more/tokenizer.json || fail '-f one two must equal -f one -f two'
cat one two >both
train -q -t 2 --vocab-size 290 -o piped -f - <both >out 2>err || fail "stdin must be accepted (got $(cat err))"
cmp -s bpe/tokenizer.json piped/tokenizer.json || fail 'stdin must give the same tokenizer'
for how in '-' ''; do # the same text after a byte order mark that is written byte by byte
    # shellcheck disable=SC2059,SC2086 # escapes, words
    { for byte in '\357' '\273' '\277'; do printf "$byte" && sleep 0.05; done && cat both; } |
        train -q -t 2 --vocab-size 290 -o "piped$how.too" $how >out 2>err || fail "stdin must be accepted (got $(cat err))"
    cmp -s bpe/tokenizer.json "piped$how.too/tokenizer.json" || fail "stdin must give the same tokenizer with '$how'"
done
expect 0 train --vocab-size 290 -o hinted one
has err 'did you mean -f one?'
expect 0 train -q --vocab-size 290 -o said "$(cat one)" "$(cat two)"
expect 0 train --vocab-size 290 -o said --force 'a a a' 'b b b'
has out 'said: 259 tokens, including 256 characters'

# An existing folder must be replaced only with --force, and not if it contains an unknown file.
refused 2 train -q --vocab-size 290 -o bpe -f one
touch wp/mine
refused 1 train -q --vocab-size 90 --type wordpiece -o wp --force -f one
[ -f wp/vocab.txt ] || fail 'a rejected command must not change the folder'

# Usage errors and invalid texts must be rejected.
refused 2 "$MHA" tokenizer
has err 'the first argument must be train (got "'
refused 2 "$MHA" tokenizer teach --vocab-size 290 -o x text
refused 2 train --vocab-size 290 -o x
has err 'missing text: give one or more texts'
refused 2 train --vocab-size 290 text
has err 'missing -o FOLDER'
refused 2 train -o x text
has err 'missing --vocab-size N'
refused 2 train --vocab-size many -o x text
refused 2 train --vocab-size 290 --type unigram -o x text
has err 'must be one of bpe, wordpiece'
refused 2 train --vocab-size 290 --lowercase -o x text
has err '--lowercase requires --type wordpiece'
refused 2 train --vocab-size 290 --alphabet 9 -o x text
refused 2 train --vocab-size 100 -o x text
has err 'vocab_size must be at least the 1 special tokens and 256 bytes (got 100)'
refused 2 train --vocab-size 2000000 -o x text
has err 'vocab_size must be from 1 to 1048576 (got 2000000'
refused 2 train --vocab-size 290 -o x ''
has err 'text must contain words to train on'
refused 2 train --vocab-size 290 --special '' -o x text
refused 3 train --vocab-size 290 -o x -f nowhere
refused 3 train --vocab-size 290 -o x -f .
has err '.: must be a regular file (got a directory)'
printf 'one\ntwo \377\n' >broken
refused 3 train --vocab-size 290 -o x -f one broken
has err 'broken: line 2: text must be UTF-8 (got 0xFF at byte 4)'
head -c 17000000 /dev/zero | tr '\0' a >long
refused 3 train --vocab-size 290 -o x -f long
has err 'long: line 1: text must have a space between words at least every 16 MiB'
[ ! -e x ] || fail 'a failed command must not create a folder'

# Help and completion must include the command.
expect 0 "$MHA" tokenizer --help
has out '--min-frequency'
expect 0 "$MHA" completion bash
has out 'tokenizer'
finish

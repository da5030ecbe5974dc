#!/bin/sh
# test_cli_texts.sh - texts from arguments, files and pipes; `mha tokenize`.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
tokenize() { "$MHA" tokenize -m "$tiny" "$@"; }

# One text is one object; ids, tokens and offsets belong together.
expect 0 tokenize --json 'the tank, again'
at ids '[2,237,392,117,361,3]'
at tokens '["[CLS]","the","tank",",","again","[SEP]"]'
at offsets '[[0,0],[0,3],[4,8],[8,9],[10,15],[0,0]]'
cp out single
expect 0 tokenize --json --no-special 'the tank, again'
at ids '[237,392,117,361]'
expect 0 tokenize --json --max-tokens 3 'the tank, again'
at ids '[2,237,3]'
at truncated 3
expect 0 tokenize 'the tank, again'
has out '[CLS]'
has out '6 tokens'

expect 0 tokenize --json --decode 'the tank, again'
at decoded '[CLS] the tank, again [SEP]'
expect 0 tokenize --decode 'the tank, again'
has out '[CLS] the tank, again [SEP]'

# A tokenizer of another family, with no model beside it or one that cannot be run yet.
expect 0 "$MHA" tokenize -m "$data/tokenizer/gpt2-tiny" --json --decode "don't"
at tokens '["d","on","'"'"'t"]'
at offsets '[[0,1],[1,3],[3,5]]'
at decoded "don't"

# The model's maximum cuts, --max-tokens 0 does not.
long=$(printf 'the %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20)
expect 0 tokenize --json "$long$long$long$long$long$long"
at ids.# 96
expect 0 tokenize --json --max-tokens 0 "$long$long$long$long$long$long"
at ids.# 122

# Files: one text a line, with or without a last newline or CR; one object a line.
printf 'the tank, again' >plain
printf 'the tank, again\r\n' >crlf
for file in plain crlf; do
    expect 0 tokenize --json -f $file
    same out single "$file"
done
printf 'the\n\nagain\n' >three
expect 0 tokenize --json -f three
[ "$(wc -l <out)" = 3 ] || fail 'three lines are not three objects'
tokenize --json -f - <plain >out || fail '-f - does not read stdin'
same out single '-f -'

# Refused: exit 3, the line is named.
printf 'the\nbad \377 byte\n' >utf8
refused 3 tokenize -f utf8
has err 'line 2: not valid UTF-8: byte 4 (0xFF)'
: >empty
refused 3 tokenize -f empty
refused 3 tokenize -f missing
refused 3 tokenize -f .
mkfifo fifo
refused 3 tokenize -f fifo
refused 3 tokenize "$(printf 'bad \377 byte')"
has err 'text 1: not valid UTF-8: byte 4 (0xFF)'
printf 'a\000b\n' >nul
expect 0 tokenize --json -f nul # NUL is data here
refused 3 "$MHA" embed -m "$tiny" -f nul
refused 3 "$MHA" tokenize -m '' text
has err 'a folder without a name'
refused 3 "$MHA" info -m ''
has err 'without a name'
refused 2 tokenize
refused 2 tokenize -f plain text
refused 2 tokenize --max-tokens -5 text
refused 3 "$MHA" tokenize -m no/such/folder text

# A tokenizer alone is enough, and what its file says is shown harmlessly.
mkdir alone
sed 's/"tank"/"ta\\u001b[2J\\u202e\\u007f"/' "$tiny/tokenizer.json" >alone/tokenizer.json
expect 0 "$MHA" tokenize -m alone --no-special the
has out the
expect 0 "$MHA" tokenize -m alone --json the
printf 'ta\033[2J\342\200\256\177' >hostile
expect 0 "$MHA" tokenize -m alone -f hostile
harmless out
expect 0 "$MHA" tokenize -m alone --json -f hostile
harmless out
finish

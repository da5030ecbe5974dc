#!/bin/sh
# test_cli_texts.sh - tests how commands read texts from arguments, files and pipes, and tests `mha tokenize`.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
tokenize() { "$MHA" tokenize -m "$tiny" "$@"; }

# For each text, the output must be one JSON object with ids, tokens and offsets.
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

# Tokenizers of other families must work in folders without a model or with an unsupported model.
expect 0 "$MHA" tokenize -m "$data/tokenizer/gpt2-tiny" --json --decode "don't"
at tokens '["d","on","'"'"'t"]'
at offsets '[[0,1],[1,3],[3,5]]'
at decoded "don't"

# Texts must be truncated to the maximum of the model, but not with --max-tokens 0.
long=$(printf 'the %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20)
expect 0 tokenize --json "$long$long$long$long$long$long"
at ids.# 96
expect 0 tokenize --json --max-tokens 0 "$long$long$long$long$long$long"
at ids.# 122

# Each line of a file must be one text, with or without a final newline and with LF or CRLF line endings.
printf 'the tank, again' >plain
printf 'the tank, again\r\n' >crlf
for file in plain crlf; do
    expect 0 tokenize --json -f $file
    same out single "$file"
done
printf 'the\n \t\nagain\n\n' >gaps
expect 0 tokenize --json -f gaps
[ "$(wc -l <out)" = 2 ] || fail 'two texts and two blank lines must give two objects'
has err 'gaps: skipped 2 blank lines'
expect 0 tokenize -q --json -f gaps
[ ! -s err ] || fail '-q must suppress the message on blank lines'
printf '\357\273\277the tank, again\n' >marked
expect 0 tokenize --json -f marked
same out single 'a byte order mark'
has_not err blank

# A line that contains only white space, as defined by Unicode, must be blank. U+200B is not white space.
white='\302\205 \302\240 \341\232\200 \342\200\200 \342\200\212 \342\200\250 \342\200\251 \342\200\257 \342\201\237 \343\200\200'
# shellcheck disable=SC2059 # the format contains the escapes
{
    printf 'the tank, again\n'
    for character in $white; do printf "$character\n"; done
    printf "$white"
} >unicode
expect 0 tokenize --json -f unicode
same out single 'lines of white space'
has err 'unicode: skipped 11 blank lines'
printf '\342\200\213\n' >zero-width
expect 0 tokenize --json -f zero-width
printf '\343\200\200\n\302\240' >wide
for how in line paragraph whole; do
    refused 3 tokenize -f wide --documents $how
    has err 'wide: must contain a text'
done
# A CR at the end of the last line must be removed even if the newline is missing, because byte-level BPE would make it
# a token.
for how in line paragraph whole; do
    printf 'the tank,\r\nagain\r\n' >with
    printf 'the tank,\r\nagain\r' >without
    for file in with without; do
        expect 0 "$MHA" tokenize -m "$data/models/gpt2-tiny" --json --documents $how -f $file
        mv out $file.$how
    done
    same with.$how without.$how "--documents $how: last line with CR"
done

# With --documents paragraph or whole, newlines within a text must be kept, and the last newline must be removed.
printf 'the tank,\r\nagain\n\n \nthe\n' >letter
expect 0 tokenize --json --documents paragraph -f letter
[ "$(wc -l <out)" = 2 ] || fail 'two paragraphs must give two objects'
has_not err skipped
head -n 1 out >first
expect 0 tokenize --json --documents whole -f letter
[ "$(wc -l <out)" = 1 ] || fail 'a whole file must give one object'
printf 'the tank,\nagain' >paragraph
expect 0 tokenize --json --documents whole -f paragraph
same out first 'a paragraph and a file that contains it'
expect 0 tokenize --json --documents line -f letter
[ "$(wc -l <out)" = 3 ] || fail 'three lines must give three objects'
refused 2 tokenize --documents page -f letter
has err '--documents must be one of line, paragraph, whole (got "page")'
refused 2 tokenize --documents whole the
has err '--documents requires texts from a file or a pipe'

# Standard input must be read with -f -, with the argument -, and, if it is a pipe or a file, by default.
for how in '-f -' '-' ''; do
    # shellcheck disable=SC2086 # splits the variable into words
    tokenize --json $how <plain >out || fail "'$how' must read a file"
    same out single "a file, with '$how'"
    # shellcheck disable=SC2002,SC2086 # tests a pipe; splits the variable into words
    cat plain | tokenize --json $how >out || fail "'$how' must read a pipe"
    same out single "a pipe, with '$how'"
done
refused 2 tokenize - the
has err '- (standard input) must be the only text'
printf '\377\n' >bytes
tokenize - <bytes >out 2>err && fail 'piped text must be validated'
has err 'standard input: line 1: not valid UTF-8: byte 0 (0xFF)'

# An argument that is the name of a file must be treated as text, and a hint must suggest -f.
expect 0 tokenize --json plain
has err 'did you mean -f plain?'
expect 0 tokenize --json -q plain
[ ! -s err ] || fail '-q must suppress the hint'
expect 0 tokenize --json the
[ ! -s err ] || fail 'a hint must not be printed if the file does not exist'
for command in 'prune -o x --count 1' 'regroup -o x --kv-heads 2' 'train -o x --vocab 300 --shape gpt2:1x1x8'; do
    # shellcheck disable=SC2086 # splits the variable into words
    refused 2 "$MHA" $command plain
    has err 'unexpected argument "plain": did you mean -f plain?'
done

# Invalid text must be rejected with exit status 3 and a message that names the line.
printf 'the\nbad \377 byte\n' >utf8
refused 3 tokenize -f utf8
has err 'utf8: line 2: not valid UTF-8: byte 4 (0xFF)'
: >empty
refused 3 tokenize -f empty
has err 'empty: must contain a text'
printf '\n \n' >blank
for how in line paragraph whole; do
    refused 3 tokenize -f blank --documents $how
    has err 'blank: must contain a text'
done
refused 3 tokenize -f missing
refused 3 tokenize -f .
mkfifo fifo
refused 3 tokenize -f fifo
refused 3 tokenize "$(printf 'bad \377 byte')"
has err 'text 1: not valid UTF-8: byte 4 (0xFF)'
printf 'a\000b\n' >nul
expect 0 tokenize --json -f nul # mha tokenize accepts NUL characters
refused 3 "$MHA" embed -m "$tiny" -f nul
has err 'nul: line 1: texts must not contain a NUL character'
refused 2 "$MHA" tokenize -m '' text
has err '-m must name a model (got "")'
refused 2 tokenize
refused 2 tokenize -f plain text
refused 2 tokenize --max-tokens -5 text
refused 3 "$MHA" tokenize -m no/such/folder text

# All commands must skip blank lines and byte order marks.
printf '%s\n' 'you keep the count' 'and then again' 'they said so' 'all the words that we know' >some
{ printf '\357\273\277' && sed 's/$/\n \t/' some; } >spaced
one_rule() {
    expect 0 "$MHA" "$@" -f some
    mv out plain.out
    expect 0 "$MHA" "$@" -f spaced
    has err 'spaced: skipped 4 blank lines'
    same out plain.out "$*"
}
gpt2=$data/models/gpt2-tiny
one_rule heads -m "$gpt2" --json
one_rule embed -m "$gpt2" --json
one_rule score -m "$gpt2"
one_rule generate -m "$gpt2" -n 2
one_rule diff -m "$tiny" -m "$tiny"
for command in 'prune --count 2 --json' 'regroup --kv-heads 1 --json'; do
    # shellcheck disable=SC2086 # splits the variable into words
    for file in some spaced; do
        expect 0 "$MHA" $command -m "$gpt2" -f $file -o made --force
        "$JSON_AT" quality <out >quality.$file
    done
    has err 'spaced: skipped 4 blank lines'
    same quality.some quality.spaced "$command"
    # shellcheck disable=SC2002,SC2086 # tests a pipe; splits the variable into words
    cat some | "$MHA" $command -m "$gpt2" -o made --force >out 2>err || fail "$command must read a pipe"
    "$JSON_AT" quality <out >quality.piped
    same quality.some quality.piped "$command"
done
printf '\nyou keep\n\nthe count\n' >letter
expect 0 "$MHA" draw -m "$gpt2" --grid -f letter --documents whole -o letter.svg
expect 0 "$MHA" report -m "$gpt2" -f letter --documents whole -o letter.html
expect 0 "$MHA" logits -m "$gpt2" -f letter --documents whole --json

# Messages about a text in a file must name its line.
printf '1,2\n\n3,x\n' >ids
refused 3 "$MHA" heads -m "$gpt2" --ids -f ids
has err '--ids: ids: line 3: token ids must be whole numbers separated by commas (got "x")'
printf '%s\n' 1,2 '' 1,2 3,4 5,6 7,x 8,9 >ids
refused 3 "$MHA" prune -m "$gpt2" --ids -f ids --count 1 -o x
has err '--ids: ids: line 6: '
printf 'the\n\n%s\n' "$long$long$long$long$long$long" >lengths
for command in embed heads; do
    expect 0 "$MHA" $command -m "$tiny" -f lengths
    has err 'lengths: line 3: 122 tokens, 26 were truncated'
done
printf 'a\tb\n\na\n' >pairs
refused 2 "$MHA" heads -m "$gpt2" --by gate --loss pairs -f pairs
has err 'pairs: line 3: --loss pairs requires two texts separated by one tab'

# mha tokenize must require only tokenizer.json, and must escape its tokens in the output.
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

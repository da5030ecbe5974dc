#!/bin/sh
# test_cli_frame.sh - help, version, wrong use, and where output goes.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

# Asked for: stdout and 0. Wrong use: stderr and 2.
expect 0 "$MHA" --help
has out 'Usage: mha COMMAND'
[ ! -s err ] || fail '--help wrote to stderr'
expect 0 "$MHA" --version
has out 'mha '
has out 'scalar'
refused 2 "$MHA"
refused 2 "$MHA" nonsense
refused 2 "$MHA" --nonsense
refused 2 "$MHA" info --nonsense
# Numbers: digits only, one rule for -t and MHA_THREADS; the option and the value are named.
for bad in x -1 0 1025 ' 3' +3 0x3 3x '' 99999999999999999999; do
    refused 2 "$MHA" info -t "$bad"
    has err "-t \"$bad\": want a whole number from 1 to 1024"
    [ -n "$bad" ] || continue # an empty variable counts as not set
    refused 2 env MHA_THREADS="$bad" "$MHA" info
    has err "MHA_THREADS is \"$bad\""
done
refused 2 "$MHA" heads -s -1 text
has err '-s "-1"'
refused 2 "$MHA" tokenize --max-tokens few text
has err '--max-tokens "few"'
refused 2 "$MHA" bench attention --seconds soon
has err '--seconds "soon"'
refused 2 "$MHA" info -t
has err '-t: missing argument'
refused 2 "$MHA" info -q -v
refused 2 "$MHA" info --isa sse9
refused 2 "$MHA" demo now
refused 2 "$MHA" heads --dtype f8 text
refused 2 "$MHA" completion
expect 0 "$MHA" info --json # the built-in model, unless another is named
at family llama
refused 3 "$MHA" info -m minilm
has err 'fetch minilm'

# What the user typed is shown harmlessly.
refused 2 "$MHA" "$(printf 'x\033[2J\302\233y')"
harmless err
has err '\x1b[2J'

# Nothing is wider than the terminal: results at 40 columns, help at 80.
# Characters are counted, not bytes: of each only the first byte is left.
narrow() {
    width=$1
    shift
    expect 0 env COLUMNS="$width" "$@"
    wide=$(LC_ALL=C tr -d '\200-\277' <out | awk -v n="$width" 'length > n')
    [ -z "$wide" ] || fail "wider than $width columns: $*: $wide"
}
for columns in 40 80 120; do
    for command in demo info tokenize embed heads verify; do
        text='How far does the ferry go today, and at what time does it come back?'
        case $command in
        demo | info | verify) narrow $columns "$MHA" "$command" ;;
        *) narrow $columns "$MHA" "$command" "$text" "$text" ;;
        esac
    done
    narrow $columns "$MHA" --help
done
for command in $("$MHA" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do narrow 80 "$MHA" "$command" --help; done
narrow 80 "$MHA" info "$tiny/model.safetensors"

# heads --help and the glossary name every metric and every label of heads.h.
expect 0 "$MHA" heads --help
sed -n 's/^ *X(MHA_\(HEAD\|LABEL\)_[A-Z0-9_]*, "\([a-z0-9_]*\)".*/\2/p' "$here/include/mha/heads.h" >keys
[ "$(wc -l <keys)" = 40 ] || fail "heads.h: $(wc -l <keys) keys of metrics and labels, not 40"
while read -r key; do
    grep -q "^  $key  *[^ ]" out || fail "heads --help does not explain $key"
    has "$here/docs/glossary.md" "\`$key\`"
done <keys
# The glossary explains every score of importance.h.
sed -n 's/^ *X(MHA_SCORE_[A-Z0-9_]*, "\([a-z0-9_]*\)".*/\1/p' "$here/include/mha/importance.h" >keys
[ "$(wc -l <keys)" -ge 9 ] || fail "importance.h: only $(wc -l <keys) keys of scores"
while read -r key; do has "$here/docs/glossary.md" "\`$key\`"; done <keys
# And every measure of diversity.h.
sed -n 's/^ *X(MHA_DIVERSITY_[A-Z0-9_]*, "\([a-z0-9_]*\)".*/\1/p' "$here/include/mha/diversity.h" >keys
[ "$(wc -l <keys)" = 7 ] || fail "diversity.h: $(wc -l <keys) keys of measures, not 7"
while read -r key; do has "$here/docs/glossary.md" "\`$key\`"; done <keys

# Every command has help of its own, and every shell a completion that names every command and option.
commands=$("$MHA" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
[ "$(echo "$commands" | wc -l)" -ge 6 ] || fail 'the list of commands is short'
for command in $commands; do
    expect 0 "$MHA" "$command" --help
    has out "Usage: mha $command"
    [ ! -s err ] || fail "$command --help wrote to stderr"
done
for shell in bash zsh fish; do
    expect 0 "$MHA" completion "$shell"
    mv out "completion.$shell"
    for command in $commands; do
        has "completion.$shell" "$command"
        for option in $("$MHA" "$command" --help | sed -n 's/^ .*--\([a-z0-9-]*\).*/\1/p'); do
            grep -q -e "-*$option" "completion.$shell" || fail "$shell: no --$option"
        done
    done
done
if command -v bash >/dev/null; then
    bash -n completion.bash || fail 'bash cannot read its completion'
    # shellcheck disable=SC2016
    words=$(bash -c '. ./completion.bash; COMP_WORDS=(mha heads --j) COMP_CWORD=2; _mha; echo "${COMPREPLY[*]}"')
    [ "$words" = --json ] || fail "bash completes 'mha heads --j' to '$words'"
fi

# A reader that has gone away is no failure; a full or missing stdout is.
{ "$MHA" completion fish; echo $? >status; } 2>err | head -n 1 >out
[ "$(cat status)" = 0 ] || fail "closed pipe: exit $(cat status)"
[ ! -s err ] || fail 'closed pipe: it spoke'
if [ -w /dev/full ]; then
    "$MHA" completion fish >/dev/full 2>err && fail 'a full disk was not noticed'
    has err 'No space left'
    "$MHA" --help >/dev/full 2>err && fail '--help: a full disk was not noticed'
fi
"$MHA" completion fish >&- 2>err && fail 'a missing stdout was not noticed'
has err 'cannot write'
finish

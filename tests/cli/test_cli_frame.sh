#!/bin/sh
# test_cli_frame.sh - tests help, version, usage errors, completion, and output streams.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

# Help must be printed to stdout, with exit status 0; usage errors must be printed to stderr, with exit status 2.
expect 0 "$MHA" --help
has out 'Usage: mha COMMAND'
[ ! -s err ] || fail '--help must not write to stderr'
expect 0 "$MHA" --version
has out 'mha '
has out 'scalar'
refused 2 "$MHA"
refused 2 "$MHA" nonsense
has err 'mha: unknown command "nonsense"'
has_not err 'did you mean'
refused 2 "$MHA" --nonsense
refused 2 "$MHA" info --nonsense
has err '--nonsense: unknown option'
has_not err 'did you mean'
# For an unknown word, the message must suggest a similar valid word if one exists.
means() { # WORD ARGUMENT...: mha ARGUMENT... must fail with a message that suggests WORD
    meant=$1
    shift
    refused 2 "$MHA" "$@"
    has err "did you mean $meant?"
}
means tokenize tokenise
means generate gnerate
means version --versoin
means heads help haeds
means --temperature generate --temp 1
means --length train --lenght=5
means --json heads --jsn
expect 0 "$MHA" --version
mv out versions
for version in version -V; do
    expect 0 "$MHA" $version
    same out versions "mha $version"
done
expect 0 "$MHA" --help
mv out helps
expect 0 "$MHA" help
same out helps 'mha help'
expect 0 "$MHA" help help
same out helps 'mha help help'
expect 0 "$MHA" help version
has out 'Usage: mha version'
mv out helps
expect 0 "$MHA" version --help
same out helps 'mha version --help'
refused 2 "$MHA" version foo
has err 'version accepts no argument (got "foo")'
refused 2 "$MHA" help heads score
# The values of -t and MHA_THREADS must consist only of digits; the error message must contain the option and its value.
for bad in x -1 0 1025 ' 3' +3 0x3 3x '' 99999999999999999999; do
    refused 2 "$MHA" info -t "$bad"
    has err "-t must be a whole number from 1 to 1024 (got \"$bad\")"
    [ -n "$bad" ] || continue # an empty variable is treated as unset
    refused 2 env MHA_THREADS="$bad" "$MHA" info
    has err "MHA_THREADS must be a whole number from 1 to 1024 (got \"$bad\")"
done
# An option with one value must be rejected if repeated; options with several values, flags and --help may be repeated.
once() { # OPTION TIMES ARGUMENT...: mha ARGUMENT..., in which OPTION occurs TIMES times, must fail
    option=$1 times=$2
    shift 2
    refused 2 "$MHA" "$@"
    has err "$option must be given at most once (got $times)"
}
once -f 2 score -f a.txt --file b.txt
once -f 3 score -f a.txt -f a.txt -f a.txt
once -m 2 info -m builtin -m builtin
once -m 2 train --shape gpt2:1x1x8 -m builtin -m minilm -o new
once --scores 2 prune --scores a.csv --scores b.csv --count 1 -o new
once --steps 2 train --steps 1 --steps 2 -o new
once -t 2 info -t 1 --threads 2
once -o 2 report -o a.html -o b.html text
expect 0 "$MHA" info -q -q
expect 0 "$MHA" info -t 1 -t 2 --help
printf 'one text\n' >a.txt
expect 0 "$MHA" tokenizer train -q --vocab-size 260 -f a.txt -f a.txt -o tokenizer
refused 2 "$MHA" heads -s -1 text
has err '-s must be a whole number of at least 0 (got "-1")'
refused 2 "$MHA" tokenize --max-tokens few text
has err '--max-tokens must be a whole number from 0 to 2147483647 (got "few")'
refused 2 "$MHA" bench attention --seconds soon
has err '(got "soon")'
refused 2 "$MHA" info -t
has err '-t: missing argument'
refused 2 "$MHA" info -q -v
refused 2 "$MHA" info --isa sse9
refused 2 "$MHA" demo now
refused 2 "$MHA" heads --dtype f8 text
refused 2 "$MHA" completion
expect 0 "$MHA" info --json # the built-in model is the default
at family llama
refused 3 "$MHA" info -m minilm
has err 'fetch minilm'

# Messages must escape control characters in user input.
refused 2 "$MHA" "$(printf 'x\033[2J\302\233y')"
harmless err
has err '\x1b[2J'

# Output must fit the width of the terminal: results in at least 40 columns, help in 80. Only the first byte of each
# UTF-8 character is kept, so that characters are counted instead of bytes.
narrow() {
    width=$1
    shift
    expect 0 env COLUMNS="$width" "$@"
    wide=$(LC_ALL=C tr -d '\200-\277' <out | awk -v n="$width" 'length > n')
    [ -z "$wide" ] || fail "$*: lines must have at most $width columns (got $wide)"
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

# heads --help and the glossary must describe every metric and label of heads.h.
expect 0 "$MHA" heads --help
sed -n 's/^ *X(MHA_\(HEAD\|LABEL\)_[A-Z0-9_]*, "\([a-z0-9_]*\)".*/\2/p' "$here/include/mha/heads.h" >keys
[ "$(wc -l <keys)" = 40 ] || fail "heads.h must define 40 metrics and labels (got $(wc -l <keys))"
while read -r key; do
    grep -q "^  $key  *[^ ]" out || fail "heads --help must explain $key"
    has "$here/docs/glossary.md" "\`$key\`"
done <keys
# The glossary must explain every score of importance.h.
sed -n 's/^ *X(MHA_IMPORTANCE_[A-Z0-9_]*, "\([a-z0-9_]*\)".*/\1/p' "$here/include/mha/importance.h" >keys
[ "$(wc -l <keys)" -ge 9 ] || fail "importance.h must define at least 9 scores (got $(wc -l <keys))"
while read -r key; do has "$here/docs/glossary.md" "\`$key\`"; done <keys
# The glossary must explain every measure of diversity.h.
sed -n 's/^ *X(MHA_DIVERSITY_[A-Z0-9_]*, "\([a-z0-9_]*\)".*/\1/p' "$here/include/mha/diversity.h" >keys
[ "$(wc -l <keys)" = 7 ] || fail "diversity.h must define 7 measures (got $(wc -l <keys))"
while read -r key; do has "$here/docs/glossary.md" "\`$key\`"; done <keys

# Every command must have a help text, and the completions for all shells must contain every command and option.
commands=$("$MHA" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
[ "$(echo "$commands" | wc -l)" -ge 6 ] || fail 'the list of commands must be complete'
for command in $commands; do
    expect 0 "$MHA" "$command" --help
    has out "Usage: mha $command"
    has out 'Common options:'
    has out 'Examples:'
    has out "  mha $command"
    mv out command.help
    expect 0 "$MHA" help "$command"
    same out command.help "mha help $command"
    [ ! -s err ] || fail "$command --help must not write to stderr"
done
expect 0 "$MHA" train --help
[ "$(grep -c '^[A-Z][A-Za-z, ]*:$' out)" -ge 12 ] || fail 'the options of train must be grouped'
for shell in bash zsh fish; do
    expect 0 "$MHA" completion "$shell"
    mv out "completion.$shell"
    for command in $commands; do
        has "completion.$shell" "$command"
        for option in $("$MHA" "$command" --help | sed -n 's/^ .*--\([a-z0-9-]*\).*/\1/p'); do
            grep -q -e "-*$option" "completion.$shell" || fail "the completion of $shell must contain --$option"
        done
    done
done
if command -v bash >/dev/null; then
    bash -n completion.bash || fail 'bash must parse its completion'
    # shellcheck disable=SC2016
    completes() { # WANT WORD...: bash must complete the last word to WANT
        want=$1
        shift
        words=$(bash -c '. ./completion.bash; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _mha; echo "${COMPREPLY[*]}"' bash "$@")
        [ "$words" = "$want" ] || fail "bash must complete '$*' to '$want' (got '$words')"
    }
    mkdir -p checkpoints
    completes --json mha heads --j
    completes 'tokenize tokenizer' mha tok
    completes 'help heads' mha he
    completes regroup mha help reg
    completes train mha tokenizer tr
    completes 'line paragraph whole' mha score --documents ''
    completes 'bf16' mha train --dtype = b
    completes 'cosine constant' mha train --schedule =
    completes 'root linear' mha heads --colors ''
    completes 'joint jacobian jacobian_probe' mha prune --by j
    completes 'builtin' mha heads -m b
    completes 'checkpoints' mha heads --model ch
    completes '' mha train --rate 0
fi

# The values that completion offers for an option must be exactly those that the option accepts.
"$MHA" completion fish | sed -n "s/.*from \([a-z]*\)'.* -l \([a-z-]*\) -xa '\([^(]*\)' -d .*/\1 \2 \3/p" | grep -v ' isa ' >values
[ "$(wc -l <values)" -ge 30 ] || fail "completion must offer values for at least 30 options (got $(wc -l <values))"
while read -r command option words; do
    case $command in
    train) set -- train -o x --vocab 300 --shape gpt2:1x1x8 -f nowhere ;;
    tokenizer) set -- tokenizer train --vocab-size 300 -o x -f nowhere ;;
    plan) set -- plan --d-model 64 ;;
    bench) set -- bench attention --rows none ;;
    report) set -- report -o x.html -f nowhere ;;
    draw) set -- draw --grid -o x.png -f nowhere ;;
    prune) set -- prune --count 1 -o x -f nowhere ;;
    regroup) set -- regroup --kv-heads 2 -o x -f nowhere ;;
    diff) set -- diff -m builtin -m builtin -f nowhere ;;
    transcribe) set -- transcribe nowhere ;;
    live) set -- live -o x.html -f nowhere ;;
    tour) set -- tour reshape ;;
    convert) set -- convert nowhere x ;;
    attribute) set -- attribute -f nowhere --answer " boat" ;;
    patch) set -- patch " red" --corrupted " cat" --answer " boat" --wrong " ring" --site all ;;
    *) set -- "$command" -f nowhere ;;
    esac
    [ "$option" != loss ] || set -- "$@" --by gate
    case $command,$option in plan,job | plan,network | plan,weights) set -- "$@" --hosts 1 --speed 1:1 ;; esac
    for word in $words; do
        "$MHA" "$@" "--$option=$word" >out 2>err </dev/null
        if grep -q "\"$word\"" err; then fail "$command must accept --$option $word, which is completed (got $(cat err))"; fi
    done
    refused 2 "$MHA" "$@" "--$option=unlikely"
    has err unlikely
done <values

# A closed pipe must not be an error; a full or closed stdout must be an error.
{ "$MHA" completion fish; echo $? >status; } 2>err | head -n 1 >out
[ "$(cat status)" = 0 ] || fail "closed pipe: exit status must be 0 (got $(cat status))"
[ ! -s err ] || fail 'closed pipe: the program must not write to stderr'
if [ -w /dev/full ]; then
    "$MHA" completion fish >/dev/full 2>err && fail 'a full disk must be reported'
    has err 'No space left'
    "$MHA" --help >/dev/full 2>err && fail '--help: a full disk must be reported'
fi
"$MHA" completion fish >&- 2>err && fail 'a closed stdout must be reported'
has err 'cannot write'
finish

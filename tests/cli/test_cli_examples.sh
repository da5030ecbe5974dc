#!/bin/sh
# test_cli_examples.sh - runs the examples in the help of every command unchanged, in order, in a folder with the shipped
# texts. A tiny encoder replaces MiniLM.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
cp "$here"/share/mha/texts/*.txt "$here/share/mha/builtin/model.safetensors" .
mkdir -p cache/mha bin home/.config/fish/completions
ln -s "$tiny" cache/mha/minilm
ln -s "$MHA" bin/mha
ln -s "$data/seq2seq/whisper" whisper-small
wav speech.wav 9000 stories.txt
export PATH="$work/bin:$PATH" HOME="$work/home"

for command in $("$MHA" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    "$MHA" "$command" --help | sed -n '/^Examples:$/,$s/^  //p' >"$command.examples"
    [ -s "$command.examples" ] || fail "$command --help must have examples"
    case $command in
    completion) # examples for bash and fish
        command -v bash >/dev/null || continue
        bash -e "$command.examples" >out 2>err || fail "the examples of $command must succeed: $(cat err)"
        ;;
    *)
        # shellcheck disable=SC1090 # the examples are shell code, in which lines may be continued
        (set -e && . "./$command.examples") >out 2>err </dev/null || fail "the examples of $command must succeed: $(cat "$command.examples" err)"
        ;;
    esac
done
for made in demo.html tokenizer words small tuned fewer vectors.npy numbers.safetensors report.html notes.html head.png heads.pdf pruned smaller \
    curve.svg grouped shared tour.html home/.config/fish/completions/mha.fish; do
    [ -s $made ] || fail "an example must create $made"
done
finish

#!/bin/sh
# test_manual.sh - checks that every command has a manual page with its title, summary and options, and that the shell
# completions are valid shell code.
# $MHA is the program; $MHA_MANUAL is the folder to which cmake/man_pages.sh wrote the pages and completions.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

complain() {
    echo "$*"
    status=1
}

# check_page NAME SUMMARY HELP: the page NAME.1 must have its title, SUMMARY, every long option and all examples of the
# file HELP, and no duplicate section.
check_page() {
    page=$MHA_MANUAL/man1/$1.1
    title=$(printf '%s' "$1" | tr '[:lower:]' '[:upper:]')
    sed 's/\\-/-/g; s/\\&//g; s/\\e/\\/g' "$page" >"$work/plain"
    head -n 1 "$work/plain" | grep -q "^\.TH $title 1 " || complain "$page: must begin with the title $title(1)"
    grep -qxF "$1 - $2" "$work/plain" || complain "$page: must have the summary: $2"
    # Options are in the first column of the help.
    sed -n 's/^ *\(-[a-zA-Z], \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p' "$3" | while read -r option; do
        grep -q -- "^\\\\fB.*$option\\>" "$work/plain" || echo "$page: must explain $option"
    done >"$work/missing"
    [ ! -s "$work/missing" ] || complain "$(cat "$work/missing")"
    awk 'on; /^Examples:/ { on = 1 }' "$3" >"$work/examples"
    sed -n '/^\.SH EXAMPLES$/,/^\.SH /{/^  /p;}' "$work/plain" | cmp -s "$work/examples" - || complain "$page: must have the examples of the help"
    twice=$(grep '^\.SH ' "$work/plain" | sort | uniq -d)
    [ -z "$twice" ] || complain "$page: sections must be unique (got $twice twice)"
    ! command -v groff >/dev/null || groff -man -ww -z "$page" >"$work/groff" 2>&1 || complain "$page: groff failed"
    [ ! -s "$work/groff" ] || complain "$page: $(cat "$work/groff")"
}

: >"$work/groff"
"$MHA" --help >"$work/help"
awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on' "$work/help" >"$work/commands"
[ "$(wc -l <"$work/commands")" -gt 15 ] || complain 'mha --help must list the commands'
check_page mha 'multi-head attention in C' "$work/help"
while read -r command summary; do
    "$MHA" "$command" --help >"$work/own"
    check_page "mha-$command" "$summary" "$work/own"
    grep -qF "mha\\-$command\\fR(1)" "$MHA_MANUAL/man1/mha.1" || complain "mha.1: must refer to mha-$command(1)"
done <"$work/commands"
pages=$(find "$MHA_MANUAL/man1" -name '*.1' | wc -l)
[ "$pages" -eq $(($(wc -l <"$work/commands") + 1)) ] || complain "$MHA_MANUAL/man1: must contain one page per command and mha.1 (got $pages pages)"

# syntax SHELL FILE: SHELL, if installed, must parse FILE.
syntax() {
    [ -s "$MHA_MANUAL/completion/$2" ] || complain "$2 must not be empty"
    ! command -v "$1" >/dev/null || "$1" -n "$MHA_MANUAL/completion/$2" || complain "$2: $1 cannot parse it"
}
syntax bash mha
syntax zsh _mha
syntax fish mha.fish
exit "$status"

#!/bin/sh
# man_pages.sh - generates the manual pages mha.1 and mha-COMMAND.1 and the shell completions by running the program:
# man_pages.sh FOLDER VERSION PROGRAM... ; PROGRAM may begin with an emulator. Writes the pages to FOLDER/man1 and the completions to
# FOLDER/completion/{mha,_mha,mha.fish}.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
out=$1 version=$2
shift 2
rm -rf "$out/man1" "$out/completion"
mkdir -p "$out/man1" "$out/completion"

"$@" completion bash >"$out/completion/mha"
"$@" completion zsh >"$out/completion/_mha"
"$@" completion fish >"$out/completion/mha.fish"

# page NAME HELP: writes the manual page NAME from the help text in the file HELP.
page() { awk -v name="$1" -v version="$version" -f "$here/man_page.awk" "$out/help" "$2" >"$out/man1/$1.1"; }

"$@" --help >"$out/help"
page mha "$out/help"
awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }' "$out/help" | while read -r command; do
    "$@" "$command" --help </dev/null >"$out/own_help"
    page "mha-$command" "$out/own_help"
done
rm "$out/help" "$out/own_help"

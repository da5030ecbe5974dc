#!/bin/sh
# test_cli_documents.sh - runs the first commands of docs/commands.md unchanged, and compares the grid of heads on this
# page with the output of mha heads.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
ln -s "$here/share" share
mkdir -p cache/mha
ln -s "$minilm" cache/mha/minilm
# shellcheck disable=SC2016 # the script expands these variables
printf '#!/bin/sh\nexec "$MHA" "$@"\n' >run && chmod +x run # replaces ./run with a script that runs the tested program

sed -n '/^## First commands/,/^## /p' "$here/docs/commands.md" | awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' |
    sed 's/  *# .*//' >lines
[ "$(wc -l <lines)" = 6 ] || fail "the section First commands of docs/commands.md must have 6 commands (got $(wc -l <lines))"
while read -r line; do
    case $line in
    *' fetch '*) continue ;; # tested by tests/house/test_fetch.sh
    *minilm*) [ -e "$minilm/model.safetensors" ] || continue ;;
    esac
    eval "$line" >out 2>err </dev/null || fail "must exit with status 0 (got $?): $line: $(cat err)"
    case $line in *' heads '*) cp out heads ;; esac
done <lines
readable out
[ -e "$minilm/model.safetensors" ] || skip 'MiniLM is not installed: the grid is not compared'
[ -s report.html ] || fail 'report.html must exist'
sed -n '/^layer  0 /,/^ *5 /s/ *$//p' heads >printed
sed -n '/^layer  0 /,/^ *5 /p' "$here/docs/commands.md" >shown
[ -s printed ] || fail 'mha heads must print a grid'
diff shown printed || fail 'the grid in docs/commands.md must equal the output of mha heads'
finish

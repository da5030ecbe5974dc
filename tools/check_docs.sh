#!/bin/sh
# check_docs.sh - checks the documents: the C example in README.md must equal examples/attention.c, README.md must have at
# most 120 lines, pages must state the number of model families in docs/commands.md, and every linked file must exist.
set -eu
cd "$(dirname -- "$0")/.."
status=0

# Compares the first block marked `c` in README.md with the example.
awk '/^```c$/ { on = 1; next } /^```$/ { if (on) exit } on' README.md | diff -u examples/attention.c - || {
    echo 'README.md: the C example must equal examples/attention.c'
    status=1
}

lines=$(wc -l <README.md)
[ "$lines" -le 120 ] || {
    echo "README.md must have at most 120 lines (got $lines)"
    status=1
}

# Counts the model types in the table of families; the towers of clip are not counted.
# shellcheck disable=SC2016 # backticks of Markdown
families=$(grep -E '^\| (encoders|decoders|encoder-decoders|models of images) \| `' docs/commands.md |
    sed 's/, and the towers .*//' | grep -o '`[^`]*`' | wc -l)
for page in README.md docs/run-models.md docs/comparison.md; do
    grep -q "\[$families families\](" "$page" || {
        echo "$page must state the number of families in docs/commands.md, $families"
        status=1
    }
done

dead_links() {
    for page in README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md docs/*.md docs/layers/*.md; do
        grep -o '](\([^)#:]*\))' "$page" | sed 's/^](//; s/)$//' | while read -r link; do
            [ -e "$(dirname "$page")/$link" ] || echo "$page: linked file $link must exist"
        done
    done
}
dead=$(dead_links)
[ -z "$dead" ] || {
    echo "$dead"
    status=1
}
exit "$status"

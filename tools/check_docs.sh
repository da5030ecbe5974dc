#!/bin/sh
# check_docs.sh - checks the documents: the C example in README.md must equal examples/attention.c, README.md must have at
# most 120 lines, and every linked file must exist.
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

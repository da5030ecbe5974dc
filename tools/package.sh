#!/bin/sh
# package.sh [FOLDER] - builds the Debian packages libmha0, libmha-dev and mha, and a .tar.gz with the files of all three, in build/dist or
# FOLDER; prints their names. The packages are for the release of Debian or Ubuntu that this machine runs.
#
# Exit status: 0 built, 1 failed, 3 a missing package could not be installed.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=tools/setup.sh
. "$root/tools/setup.sh"

package_needs='
tool  dpkg-shlibdeps  dpkg-dev
tool  file            file
tool  gzip            gzip
'
install_needs "$build_needs$package_needs"
mkdir -p "${1:-$root/build/dist}"
out=$(CDPATH='' cd -- "${1:-$root/build/dist}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build package OFF all || fail 1 'cannot build the packages.'
logged cpack 'making packages' cpack --config "$root/build/package/CPackConfig.cmake" -B "$work" ||
    fail 1 'cannot make the packages.'
for file in "$work"/*.deb "$work"/*.tar.gz; do
    mv "$file" "$out/"
    echo "$out/${file##*/}"
done

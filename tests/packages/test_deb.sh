#!/bin/sh
# test_deb.sh - checks that tools/package.sh builds packages without lintian errors, that these can be installed in an empty Debian root,
# used and removed (packaging/try_deb.sh), and that the archive works in any folder. Skipped if mmdebstrap, lintian or root permission is
# missing.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
for tool in mmdebstrap lintian; do
    command -v "$tool" >/dev/null || {
        echo "skipped: building and installing Debian packages requires $tool"
        exit 77
    }
done
[ "$(id -u)" -eq 0 ] || {
    echo 'skipped: installing Debian packages in an empty root requires root'
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/tools/package.sh" "$work" >"$work/names"
kinds=$(sed 's/.*\.//' "$work/names" | tr '\n' ' ')
[ "$kinds" = 'deb deb deb gz ' ] || {
    echo "tools/package.sh must build three .deb and one .tar.gz (got $kinds)"
    exit 1
}

lintian --allow-root --profile debian "$work"/*.deb >"$work/lintian" 2>&1 || {
    cat "$work/lintian"
    exit 1
}

mkdir "$work/somewhere"
tar -xzf "$work"/mha-*.tar.gz -C "$work/somewhere" --strip-components=1
"$work/somewhere/bin/mha" demo | grep -q 'The built-in model'
pc=$(find "$work/somewhere" -name mha.pc)
# shellcheck disable=SC2046 # lists of words
"${CC:-cc}" "$root/examples/attention.c" $(PKG_CONFIG_PATH=${pc%/*} pkg-config --cflags --libs mha) -o "$work/attention"
LD_LIBRARY_PATH=${pc%/pkgconfig/*} "$work/attention" | grep -qF 'token 3 attends to tokens 0..3 with weights 0.000 0.005 0.000 0.995'

MHA_MODELS=${XDG_CACHE_HOME:-${HOME:-/}/.cache}/mha "$root/packaging/try_deb.sh" "$work"

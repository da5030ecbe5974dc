#!/bin/sh
# check_install.sh BUILD - checks that an installation works, can be moved, and can be removed, as described in
# README.md.
#
# Installs the build folder, moves the result, and builds and runs programs with it: tests/install with find_package,
# and every example with pkg-config. Then runs the unchanged commands of the section Install in README.md, with a
# temporary home folder. $CC is the compiler (default: cc).
set -eu
cd "$(dirname -- "$0")/.."
[ $# -eq 1 ] || {
    echo 'usage: check_install.sh BUILD' >&2
    exit 2
}
build=$(cd "$1" && pwd)
grep -q '^CMAKE_INSTALL_\(BIN\|LIB\|INCLUDE\)DIR:PATH=/' "$build/CMakeCache.txt" && {
    echo 'skipped: this build installs to absolute folders, so the test would write outside its temporary folder'
    exit 77
}
work=$(mktemp -d)
# Preserves the list of installed files that the build folder stores for `uninstall`.
manifest=$build/install_manifest.txt
[ ! -e "$manifest" ] || cp -p "$manifest" "$work/manifest"
restore() {
    rm -f "$manifest"
    [ ! -e "$work/manifest" ] || cp -p "$work/manifest" "$manifest"
    rm -rf "$work"
}
trap restore EXIT
cc=${CC:-cc}

# quietly COMMAND...: runs the command, and prints its output only if it fails.
quietly() {
    "$@" >"$work/log" 2>&1 || {
        cat "$work/log"
        echo "failed: $*"
        exit 1
    }
}

quietly cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/prefix"

# ---- CMake ----
quietly cmake -S tests/install -B "$work/consumer" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$work/prefix"
quietly cmake --build "$work/consumer"
for kind in mha shared static attn attn_static; do "$work/consumer/consumer_$kind"; done

# A static library that the package needs is missing: the component static must be missing, too.
mkdir "$work/lacking"
printf '#!/bin/sh\ncase " $* " in *" libjpeg "*) exit 1 ;; esac\nexec pkg-config "$@"\n' >"$work/lacking/pkg-config"
chmod +x "$work/lacking/pkg-config"
if grep -q 'foreach(package .*libjpeg' "$(find "$work/prefix" -name mhaConfig.cmake)" &&
    { cmake -S tests/install -B "$work/lacking/consumer" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$work/prefix" \
        -DPKG_CONFIG_EXECUTABLE="$work/lacking/pkg-config" >"$work/log" 2>&1 || ! grep -q 'mha::static requires' "$work/log"; }; then
    echo 'find_package must not find the component static without libjpeg'
    cat "$work/log"
    exit 1
fi

# ---- pkg-config: builds every example with one command ----
pc=$(find "$work/prefix" -name mha.pc)
PKG_CONFIG_PATH=${pc%/*}
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir mha)
for source in examples/*.c; do
    # shellcheck disable=SC2046 # lists of words
    quietly "$cc" "$source" $(pkg-config --cflags --libs mha) -o "$work/example"
done
for package in mha mha_attn; do
    # shellcheck disable=SC2046 # lists of words
    quietly "$cc" examples/attention.c $(pkg-config --cflags --libs "$package") "-Wl,-rpath,$libdir" -o "$work/$package"
    "$work/$package" >"$work/$package.out"
    grep -q 'token 3 attends to tokens 0..3 with weights 0.000 0.005 0.000 0.995' "$work/$package.out"
done
needed=$(readelf -d "$libdir/libmha_attn.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\.so.*/\1/p' | sort | tr '\n' ' ')
case $needed in 'libc libm ' | 'ld-linux-'*' libc libm ') ;; *)
    echo "libmha_attn must depend only on libc and libm (got $needed)"
    exit 1
    ;;
esac

# ---- program and shared files ----
if [ -e "$work/prefix/bin/mha" ]; then
    quietly "$work/prefix/bin/mha" --version
    for file in man/man1/mha.1 man/man1/mha-heads.1 bash-completion/completions/mha zsh/site-functions/_mha fish/vendor_completions.d/mha.fish; do
        [ -s "$work/prefix/share/$file" ] || {
            echo "share/$file must be installed"
            exit 1
        }
    done
fi

# ---- README.md ----
# The commands run in a folder where build/release is a link to this build, and examples a link to the examples of the
# project.
mkdir -p "$work/tree/build" "$work/home" "$work/bin"
ln -s "$build" "$work/tree/build/release"
ln -s "$PWD/examples" "$work/tree/examples"
# lines N: writes the N-th block of commands of the section Install to $work/linesN.
lines() {
    awk -v wanted="$1" '/^## / { on = /^## Install/ } /^```$/ { code = 0 } on && code && block == wanted
        on && /^```sh$/ { code = 1; block++ }' README.md >"$work/lines$1"
    grep -q 'cmake --install' "$work/lines$1" || {
        echo "README.md: block $1 of the section Install must contain cmake --install"
        exit 1
    }
}

# Installation for one user: with the current PATH, but without the other variables.
lines 1
(cd "$work/tree" && quietly env -u PKG_CONFIG_PATH -u LD_LIBRARY_PATH HOME="$work/home" sh -eu "$work/lines1")
left=$(find "$work/home/.local" ! -type d -o -name mha)
[ -z "$left" ] || {
    echo "uninstall must remove all files (left: $left)"
    exit 1
}

# Installation for all users: in a mount namespace with temporary /usr/local and /etc, where a script replaces sudo.
lines 2
cat >"$work/private" <<'PRIVATE'
set -eu
mkdir "$1/local" "$1/etc"
cp -a /etc/. "$1/etc" 2>/dev/null || : # unreadable files are not required by ldconfig
mount --bind "$1/local" /usr/local
mount --bind "$1/etc" /etc
printf '#!/bin/sh\nexec "$@"\n' >"$1/bin/sudo"
chmod +x "$1/bin/sudo"
cd "$1/tree"
env -u PKG_CONFIG_PATH -u LD_LIBRARY_PATH PATH="$1/bin:/usr/bin:/usr/sbin:/bin:/sbin" sh -eu "$1/lines2"
PRIVATE
if ! unshare -rm true 2>/dev/null; then
    echo 'skipped: installing to /usr/local; this user cannot create a mount namespace'
elif ! grep -q '^CMAKE_INSTALL_PREFIX:PATH=/usr/local$' "$build/CMakeCache.txt" || ! [ -x /usr/bin/cmake ]; then
    echo 'skipped: installing to /usr/local; this build has another prefix, or CMake itself is in /usr/local'
else
    quietly unshare -rm sh "$work/private" "$work"
    left=$(find "$work/local" ! -type d -o -name mha)
    [ -z "$left" ] || {
        echo "uninstall must remove all files (left: $left)"
        exit 1
    }
fi

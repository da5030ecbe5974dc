# setup.sh - shared by ./run and ./check: finds missing packages, installs them after asking, builds with progress.
#
# Sourced, after `root` was set to the top of the source tree. Everything it says goes to stderr; stdout belongs to the
# program. Builds lie in build/NAME (a preset of CMakePresets.json) and their logs in build/NAME.log.
# Nothing outside the source tree is changed, except by apt-get, which is named first.
# shellcheck shell=sh
: "${root:?set it before sourcing}"

# One need a line: how to look for it, what to look for, the Debian packages that bring it. (CMake checks versions.)
# shellcheck disable=SC2034 # read by run and check
build_needs='
cc    -             gcc libc6-dev
tool  cmake         cmake
tool  ninja         ninja-build
tool  pkg-config    pkg-config
lib   jansson       libjansson-dev
lib   libutf8proc   libutf8proc-dev
lib   libpcre2-8    libpcre2-dev
lib   popt          libpopt-dev
lib   cairo         libcairo2-dev
lib   zlib          zlib1g-dev
'
# shellcheck disable=SC2034 # read by fetch.sh
fetch_needs='
tool   python3   python3
certs  -         ca-certificates
'

say() { printf 'mha: %s\n' "$*" >&2; }

# fail CODE SENTENCE. Codes as in the program: 1 failed, 2 wrong use, 3 something is needed first.
fail() {
    code=$1
    shift
    say "$@"
    exit "$code"
}

have() { command -v "$1" >/dev/null 2>&1; }

# A compiler without the C library's headers is as good as none.
have_cc() { printf '#include <stdio.h>\n' | "${CC:-cc}" -E - >/dev/null 2>&1; }

# have_need KIND WHAT
have_need() {
    case $1 in
    cc) have_cc ;;
    tool) have "$2" ;;
    file) [ -e "$2" ] ;;
    lib) have pkg-config && pkg-config --exists "$2" ;;
    pip) python3 -m pip --version >/dev/null 2>&1 ;;
    venv) python3 -c 'import ensurepip, venv' >/dev/null 2>&1 ;;
    certs) [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -e /etc/pki/tls/certs/ca-bundle.crt ] || [ -e /etc/ssl/cert.pem ] ;;
    esac
}

# missing_packages NEEDS: the packages of all needs that are not met, on one line.
missing_packages() {
    printf '%s\n' "$1" | while read -r kind what packages; do
        [ -z "$kind" ] || have_need "$kind" "$what" || printf '%s ' "$packages"
    done
}

# ---- apt-get ----

# allowed PACKAGES: sets `as` (empty or sudo) when apt-get may be used; otherwise says why not and what to type.
allowed() {
    line="apt-get update && apt-get install -y --no-install-recommends $*"
    as=
    if ! have apt-get; then
        say "missing here, by their Debian names: $*"
        say 'there is no apt-get. Other systems call them cmake, ninja, pkg-config (or pkgconf) and a C compiler;'
        say 'libNAME-dev is NAME-devel on Fedora and openSUSE, NAME on Arch and Homebrew.'
        return 1
    fi
    [ "$(id -u)" -ne 0 ] || return 0
    if ! have sudo; then
        say 'packages are missing, and there are no rights to install them. An administrator can type:'
        say "    $line"
        return 1
    fi
    as=sudo
    [ "${CI:-}" != true ] && [ "${MHA_YES:-}" != 1 ] || return 0
    say "missing: $*"
    if ! [ -t 0 ] || ! [ -t 2 ]; then
        say 'there is no terminal to ask on. Set MHA_YES=1 to let this script install them with sudo, or type:'
    else
        printf 'mha: install them with sudo apt-get? [y/N] ' >&2
        read -r answer || answer=n
        case $answer in [yY]*) return 0 ;; esac
        say 'nothing was installed. To do it yourself:'
    fi
    say "    sudo sh -c '$line'"
    return 1
}

# apt_get ARGUMENTS, as `allowed` decided. Its status lines are for `progress`.
apt_get() { ${as:+"$as"} env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o APT::Status-Fd=1 "$@"; }

apt_install() { apt_get update && apt_get install -y --no-install-recommends "$@"; }

# install_needs NEEDS [ALSO]: installs what is missing, and with it what ALSO lacks, so as to ask once; exits 3 when it may
# not, 1 when it could not.
install_needs() {
    packages=$(missing_packages "$1")
    [ -n "$packages" ] || return 0
    packages=$packages$(missing_packages "${2:-}")
    # shellcheck disable=SC2086 # a list of words
    {
        allowed $packages || exit 3
        say "installing with apt-get: $packages"
        logged install installing apt_install $packages ||
            fail 1 'the packages could not be installed. Is the network there? What apt-get said is above.'
    }
    still=$(missing_packages "$1")
    [ -z "$still" ] || fail 3 "installed, but still not found: $still(is CC or PKG_CONFIG_PATH set to something else?)"
}

# ---- building ----

# progress LABEL: copies lines from stdin to the log; on a terminal, the counters of ninja ("[7/90] ..."), ctest ("7/90 Test ...")
# and apt-get ("pmstatus:zlib1g-dev:41.3793:Unpacking ...") become one moving line; elsewhere the label is said once.
progress() {
    announced=
    while IFS= read -r text; do
        printf '%s\n' "$text" >>"$log"
        case $text in
        '[0/'*) continue ;; # ninja looks whether there is anything to do
        '['[0-9]*/*']'*) count=${text%%\]*}] ;;
        *[0-9]/[0-9]*' Test '*) count=[${text%% Test *}] ;;
        dlstatus:*.[0-9]*:*) count=${text%%.[0-9]*:*} && count="[download ${count##*:} %]" ;;
        pmstatus:*.[0-9]*:*) count=${text%%.[0-9]*:*} && count="[${count##*:} %]" ;;
        *) continue ;;
        esac
        if [ -t 2 ]; then
            printf '\r\033[Kmha: %s %s' "$1" "$count" >&2
        elif [ -z "$announced" ]; then
            say "$1 (log: ${log#"$root"/})"
        fi
        announced=1
    done
    if [ -t 2 ] && [ -n "$announced" ]; then printf '\r\033[K' >&2; fi
}

# logged NAME LABEL COMMAND...: runs it with all output in build/NAME.log; the end of it is shown when it fails.
logged() {
    mkdir -p "$root/build" 2>/dev/null || :
    [ -w "$root/build" ] || fail 1 "cannot write into $root/build, where everything is built."
    log=$root/build/$1.log
    label=$2
    shift 2
    : >"$log"
    { status=0 && "$@" </dev/null 2>&1 || status=$?; echo "$status" >"$log.status"; } | progress "$label"
    status=$(cat "$log.status")
    rm -f "$log.status"
    [ "$status" -ne 0 ] || return 0
    tail -n "${log_lines:-80}" "$log" >&2
    say "that failed. The whole log: ${log#"$root"/}"
    return "$status"
}

# configured DIR TESTING: is DIR a build of this very tree, with the tests if they are wanted?
configured() {
    [ -f "$1/build.ninja" ] && grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$1/CMakeCache.txt" &&
        { [ "$2" = OFF ] || grep -qx 'BUILD_TESTING:BOOL=ON' "$1/CMakeCache.txt"; }
}

# use_ccache: objects of earlier builds are used again where ccache is installed and has a folder to keep them in. Paths count from the
# top of the tree, so that builds of the same flags share objects, and so do checkouts.
use_ccache() {
    ccache --show-stats >/dev/null 2>&1 || return 0
    CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-ccache} CCACHE_BASEDIR=${CCACHE_BASEDIR-$root} CCACHE_NOHASHDIR=1
    export CMAKE_C_COMPILER_LAUNCHER CCACHE_BASEDIR CCACHE_NOHASHDIR
}

# make_build PRESET TESTING TARGET...
make_build() {
    dir=$root/build/$1
    use_ccache
    if ! configured "$dir" "$2"; then
        # A build folder that came along with a copied tree would build the tree it was copied from.
        grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$dir/CMakeCache.txt" || rm -rf "$dir"
        cmake -S "$root" --preset "$1" -DBUILD_TESTING="$2" || return
    fi
    shift 2
    ninja -C "$dir" "$@"
}

# build PRESET TESTING [TARGET...]: brings build/PRESET up to date; a few hundredths of a second when it already is.
build() { logged "$1" "building $1" make_build "$@"; }

#!/bin/sh
# test_hardening.sh - checks that the files of a release build were built with the options of cmake/hardening.cmake.
# $MHA is the program, $MHA_LIB the shared library and $MHA_STATIC the static library. $MHA_HARDENED is 1 for hardened
# builds. $CC is the compiler (default: cc).
set -eu
[ "$MHA_HARDENED" = 1 ] || {
    echo 'skipped: this is a debug build, or MHA_HARDENING is off'
    exit 77
}
command -v readelf >/dev/null || {
    echo 'skipped: readelf (package binutils) is not installed'
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# must FILE PATTERN RULE: the output of readelf for FILE (in $work/elf) must have a line that matches PATTERN.
must() {
    grep -Eq "$2" "$work/elf" || {
        echo "${1##*/}: $3"
        status=1
    }
}

# must_not FILE PATTERN RULE: no line may match PATTERN.
must_not() {
    if grep -Eq "$2" "$work/elf"; then
        echo "${1##*/}: $3"
        status=1
    fi
}

for file in "$MHA" "$MHA_LIB"; do
    readelf -hldW --dyn-syms "$file" >"$work/elf"
    must "$file" 'Type: +DYN' 'must be loadable at any address (-pie, -shared)'
    must "$file" 'GNU_RELRO' 'must have a read-only segment after relocation (-z relro)'
    must "$file" 'FLAGS.*NOW' 'must bind all symbols at start (-z now)'
    must "$file" 'GNU_STACK .* RW +0x' 'must have a stack that is not executable (-z noexecstack)'
    must_not "$file" 'LOAD .* RWE ' 'must not have a segment that is both writable and executable'
    must "$file" '__stack_chk_fail' 'must have stack canaries (-fstack-protector-strong)'
    must "$file" '__snprintf_chk' 'must call the checked functions of libc (-D_FORTIFY_SOURCE=2)'
done
readelf -dW "$MHA" >"$work/elf"
must "$MHA" 'FLAGS_1.* PIE' 'must be a position-independent executable (-pie)'

# marked FLAG NOTE: if the compiler accepts FLAG, each object of the static library must have NOTE, which marks its jump
# targets. The program is not checked: the linker drops its note if a startup file of the system lacks the note.
marked() {
    echo 'int mha;' | "${CC:-cc}" "$1" -x c -c -o "$work/probe.o" - 2>/dev/null || return 0
    objects=$(readelf -hW "$MHA_STATIC" | grep -c '^File: ')
    with=$(readelf -nW "$MHA_STATIC" | grep -c "$2")
    if [ "$objects" -lt 100 ] || [ "$objects" -ne "$with" ]; then
        echo "${MHA_STATIC##*/}: all objects must mark their jump targets ($1; got $with of $objects)"
        status=1
    fi
}
marked -fcf-protection=full 'x86 feature: IBT, SHSTK'
marked -mbranch-protection=standard 'AArch64 feature: BTI, PAC'
exit "$status"

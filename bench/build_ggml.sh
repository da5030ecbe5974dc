#!/bin/sh
# build_ggml.sh FOLDER - builds FOLDER/libggml_peer.so, ggml's flash attention for bench/compare.py --ggml.
#
# ggml is not part of this project; its source is taken from the package llama-cpp-python. Only the CPU backend is
# built, for this machine. Requires pip ($PIP), cmake, a C compiler and a C++ compiler.
set -eu
[ $# -eq 1 ] || {
    echo 'usage: build_ggml.sh FOLDER' >&2
    exit 2
}
here=$(cd "$(dirname -- "$0")" && pwd)
mkdir -p "$1"
cd "$1"
ls llama_cpp_python-*.tar.gz >/dev/null 2>&1 ||
    ${PIP:-python3 -m pip} download --no-binary :all: --no-deps llama-cpp-python
[ -d source ] || {
    mkdir source
    tar xzf llama_cpp_python-*.tar.gz -C source --strip-components=1
}
ggml=$PWD/source/vendor/llama.cpp/ggml
[ -e "$ggml/ggml.pc.in" ] || : >"$ggml/ggml.pc.in" # CMake requires this file, which the package lacks
cmake -S "$ggml" -B build -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DGGML_NATIVE=ON -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF
cmake --build build --target ggml-cpu ggml-base --parallel
"${CC:-cc}" -O2 -shared -fPIC -I "$ggml/include" "$here/ggml_peer.c" build/src/libggml-cpu.a build/src/libggml-base.a \
    -lstdc++ -lm -pthread -o libggml_peer.so
echo "$PWD/libggml_peer.so"

#!/bin/sh
# build.sh FOLDER - builds the two libraries that call llama.cpp:
#
#   FOLDER/libggml_peer.so    its flash attention, for bench/compare.py --ggml
#   FOLDER/libllama_peer.so   its models, for bench/models.py --llama
#
# llama.cpp is not part of this project; its source is taken from the package llama-cpp-python. Only the CPU backend is
# built, for this machine. Requires pip ($PIP), cmake, a C compiler and a C++ compiler.
set -eu
[ $# -eq 1 ] || {
    echo 'usage: build.sh FOLDER' >&2
    exit 2
}
here=$(cd "$(dirname -- "$0")" && pwd)
mkdir -p "$1"
cd "$1"
ls llama_cpp_python-*.tar.gz >/dev/null 2>&1 ||
    ${PIP:-python3 -m pip} download --no-binary llama-cpp-python --no-deps llama-cpp-python
[ -d source ] || {
    mkdir source
    tar xzf llama_cpp_python-*.tar.gz -C source --strip-components=1
}
llama=$PWD/source/vendor/llama.cpp
cmake -S "$llama" -B build -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DGGML_NATIVE=ON -DGGML_OPENMP=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF
cmake --build build --target llama --parallel
# library NAME ARCHIVE...: builds libNAME_peer.so.
library() {
    name=$1
    shift
    "${CC:-cc}" -O2 -shared -fPIC -I "$llama/include" -I "$llama/ggml/include" "$here/${name}_peer.c" "$@" -lstdc++ -lm -pthread \
        -o "lib${name}_peer.so"
    echo "$PWD/lib${name}_peer.so"
}
library ggml build/ggml/src/libggml-cpu.a build/ggml/src/libggml-base.a
library llama -Wl,--start-group build/src/libllama.a build/ggml/src/libggml.a build/ggml/src/libggml-cpu.a \
    build/ggml/src/libggml-base.a -Wl,--end-group

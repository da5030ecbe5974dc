# Embeds the page of cli/NAME/page into OUT, a C file:
#   cmake -DFROM=cli/NAME/page -DNAME=NAME -DOUT=FILE -P embed_page.cmake
# OUT defines NAME_page_before and NAME_page_after, the page before and after its data; NAME_page.h declares them.
# @HEAD@ is replaced by cli/page/head.html; with @HEAD wasm@, the page may compile WebAssembly. @STYLE a.css b.css@ and
# @SCRIPT a.js b.js@ are replaced by the listed files, concatenated in that order. Their hashes are written to the
# Content-Security-Policy of the page, so the page cannot run other code.

# Converts a hexadecimal string to base64. Three hexadecimal digits correspond to two base64 digits.
function(hex_to_base64 hex out)
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(LENGTH "${hex}" length)
  set(text "")
  foreach(at RANGE 0 ${length} 3)
    string(SUBSTRING "${hex}000" ${at} 3 digits)
    math(EXPR high "0x${digits} >> 6")
    math(EXPR low "0x${digits} & 63")
    string(SUBSTRING "${alphabet}" ${high} 1 first)
    string(SUBSTRING "${alphabet}" ${low} 1 second)
    string(APPEND text "${first}${second}")
  endforeach()
  # Keeps 43 digits and adds one padding character, since a SHA-256 hash has 32 bytes.
  string(SUBSTRING "${text}" 0 43 text)
  set(${out} "${text}=" PARENT_SCOPE)
endfunction()

function(source_hash text out)
  string(SHA256 hex "${text}")
  hex_to_base64("${hex}" base64)
  set(${out} "sha256-${base64}" PARENT_SCOPE)
endfunction()

function(append_array file name text)
  file(WRITE "${OUT}.part" "${text}")
  file(READ "${OUT}.part" hex HEX)
  file(REMOVE "${OUT}.part")
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes "${bytes}")
  file(APPEND "${file}" "const unsigned char ${name}[] = {\n${bytes}0};\n")
endfunction()

# Replaces @KIND ...@ with the listed files, and sets KIND's hash, or 'none' if no file is listed.
function(join_files kind)
  set(hash "none")
  if(page MATCHES "@${kind} ([^@]+)@")
    set(names "${CMAKE_MATCH_0}")
    string(REPLACE " " ";" files "${CMAKE_MATCH_1}")
    set(text "")
    foreach(file IN LISTS files)
      file(READ "${FROM}/${file}" part)
      string(APPEND text "${part}")
    endforeach()
    source_hash("${text}" hash)
    string(REPLACE "${names}" "${text}" page "${page}")
  endif()
  string(REPLACE "@${kind}_HASH@" "${hash}" page "${page}")
  set(page "${page}" PARENT_SCOPE)
endfunction()

file(READ "${FROM}/page.html" page)
file(READ "${FROM}/../../page/head.html" head)
string(REPLACE "@HEAD@\n" "${head}" page "${page}")
string(REPLACE "script-src '" "script-src 'wasm-unsafe-eval' '" wasm_head "${head}")
string(REPLACE "@HEAD wasm@\n" "${wasm_head}" page "${page}")
join_files(STYLE)
join_files(SCRIPT)
string(FIND "${page}" "@DATA@" at)
string(SUBSTRING "${page}" 0 ${at} before)
math(EXPR at "${at} + 6")
string(SUBSTRING "${page}" ${at} -1 after)

file(WRITE "${OUT}" "/* Generated from cli/${NAME}/page by cmake/embed_page.cmake. */\n#include \"${NAME}/${NAME}_page.h\"\n")
append_array("${OUT}" ${NAME}_page_before "${before}")
append_array("${OUT}" ${NAME}_page_after "${after}")

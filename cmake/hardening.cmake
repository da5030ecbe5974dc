# hardening.cmake - protects release builds against undetected memory errors: checked libc calls, stack canaries, linker
# tables that are read-only before main() runs, randomized addresses, and control-flow protection if the CPU supports
# it. Uses only options that the compiler and the linker accept. Debug builds use the sanitizers instead.
include(CheckCCompilerFlag)
include(CheckLinkerFlag)
include(CheckPIESupported)

option(MHA_HARDENING "Harden release builds (packagers who set their own flags may disable this)" ON)

check_pie_supported(LANGUAGES C) # with this check, CMAKE_POSITION_INDEPENDENT_CODE also links programs with -pie

# mha_harden(TARGET): adds the flags to the usage requirements of the interface library TARGET.
function(mha_harden target)
  set(release $<NOT:$<CONFIG:Debug>>)
  # -U, because the compiler may predefine _FORTIFY_SOURCE with another level.
  target_compile_options(${target} INTERFACE $<${release}:-U_FORTIFY_SOURCE> $<${release}:-D_FORTIFY_SOURCE=2>)
  set(CMAKE_REQUIRED_FLAGS -Werror) # clang only warns about flags for other CPUs
  foreach(flag -fstack-protector-strong -fcf-protection=full -mbranch-protection=standard)
    string(MAKE_C_IDENTIFIER "MHA_HAS${flag}" has)
    check_c_compiler_flag(${flag} ${has})
    if(${has})
      target_compile_options(${target} INTERFACE $<${release}:${flag}>)
    endif()
  endforeach()
  foreach(flag relro now noexecstack)
    string(MAKE_C_IDENTIFIER "MHA_HAS_z_${flag}" has)
    check_linker_flag(C LINKER:-z,${flag} ${has})
    if(${has})
      target_link_options(${target} INTERFACE $<${release}:LINKER:-z,${flag}>)
    endif()
  endforeach()
endfunction()

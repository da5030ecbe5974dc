# hardening.cmake - what release builds do about memory errors that tests have not found: checked libc calls, stack canaries,
# tables that are read-only before main() runs, addresses that differ in each run, and marked jump targets where the CPU has them.
# Only options that the compiler and the linker accept are used; the sanitizers, which Debug builds are for, do more on their own.
include(CheckCCompilerFlag)
include(CheckLinkerFlag)
include(CheckPIESupported)

option(MHA_HARDENING "Harden release builds (packagers who bring their own flags may turn it off)" ON)

check_pie_supported(LANGUAGES C) # CMAKE_POSITION_INDEPENDENT_CODE then links programs with -pie, too

# mha_harden(TARGET): the flags become part of the usage requirements of the interface library TARGET.
function(mha_harden target)
  set(release $<NOT:$<CONFIG:Debug>>)
  # _FORTIFY_SOURCE may come with the compiler, at another level.
  target_compile_options(${target} INTERFACE $<${release}:-U_FORTIFY_SOURCE> $<${release}:-D_FORTIFY_SOURCE=2>)
  set(CMAKE_REQUIRED_FLAGS -Werror) # clang only warns of a flag that is meant for another CPU
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

# install.cmake - installs the program, the libraries, the headers, a CMake package and pkg-config files; defines the target
# uninstall. The installation is relocatable: paths are relative to the location of the installed files. Its components are
# `libraries` (shared), `development`, `program`, and `mpi`, whose files depend on the MPI of this machine.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/mha DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "cluster*.h" EXCLUDE)
if(MHA_PROGRAM)
  install(TARGETS mha RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()

# ---- CMake package: one file of targets per library, so that a library is found if only its own dependencies are
# installed ----
set(MHA_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/mha)
foreach(library shared static attn_shared attn_static)
  install(TARGETS mha_${library} EXPORT mha-${library}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libraries NAMELINK_COMPONENT development
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(EXPORT mha-${library} NAMESPACE mha:: DESTINATION ${MHA_PACKAGE_DIR} COMPONENT development)
endforeach()
configure_package_config_file(cmake/mhaConfig.cmake.in ${PROJECT_BINARY_DIR}/mhaConfig.cmake
                              INSTALL_DESTINATION ${MHA_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mhaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mhaConfig.cmake ${PROJECT_BINARY_DIR}/mhaConfigVersion.cmake
        DESTINATION ${MHA_PACKAGE_DIR} COMPONENT development)

# ---- pkg-config: the prefix is given relative to the .pc file (three levels up for lib/x86_64-linux-gnu), unless the
# library folder has an absolute path ----
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(MHA_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  string(REGEX REPLACE "[^/]+" ".." up ${pc_dir})
  set(MHA_PC_PREFIX "\${pcfiledir}/${up}")
endif()
set(prefix "\${prefix}") # APPEND does not change an absolute folder
cmake_path(APPEND prefix ${CMAKE_INSTALL_LIBDIR} OUTPUT_VARIABLE MHA_PC_LIBDIR)
cmake_path(APPEND prefix ${CMAKE_INSTALL_INCLUDEDIR} OUTPUT_VARIABLE MHA_PC_INCLUDEDIR)

# mha_install_pc(NAME DESCRIPTION [PACKAGE]...): installs NAME.pc; its static library requires the packages.
function(mha_install_pc name description)
  list(JOIN ARGN ", " requires)
  string(REPLACE ">=" " >= " requires "${requires}")
  configure_file(cmake/library.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pc_dir} COMPONENT development)
endfunction()
mha_install_pc(mha "${PROJECT_DESCRIPTION}" ${MHA_UTF8PROC} ${MHA_PCRE2} ${MHA_KISSFFT} ${MHA_IMAGE_PACKAGES})
mha_install_pc(mha_attn "Multi-head attention in C: the operator only")

# ---- uninstall ----
if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall VERBATIM
    COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake)
endif()

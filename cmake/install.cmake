# install.cmake - what `cmake --install` puts where: the program, both libraries, the headers, a CMake package and a
# pkg-config file. All of it can be moved: paths are computed from where the files lie.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/mha DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(MHA_PROGRAM)
  install(TARGETS mha RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# ---- CMake package: one file of targets for each library, since only the static one needs its libraries found again ----
set(MHA_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/mha)
foreach(kind shared static)
  install(TARGETS mha_${kind} EXPORT mha-${kind} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
                                                 ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT mha-${kind} NAMESPACE mha:: DESTINATION ${MHA_PACKAGE_DIR})
endforeach()
configure_package_config_file(cmake/mhaConfig.cmake.in ${PROJECT_BINARY_DIR}/mhaConfig.cmake
                              INSTALL_DESTINATION ${MHA_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mhaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mhaConfig.cmake ${PROJECT_BINARY_DIR}/mhaConfigVersion.cmake
        DESTINATION ${MHA_PACKAGE_DIR})

# ---- pkg-config: the prefix is so many folders above the .pc file (three with lib/x86_64-linux-gnu), unless the packager
# gave the library folder an absolute path ----
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(MHA_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  string(REGEX REPLACE "[^/]+" ".." up ${pc_dir})
  set(MHA_PC_PREFIX "\${pcfiledir}/${up}")
endif()
set(prefix "\${prefix}") # APPEND takes an absolute folder as it is
cmake_path(APPEND prefix ${CMAKE_INSTALL_LIBDIR} OUTPUT_VARIABLE MHA_PC_LIBDIR)
cmake_path(APPEND prefix ${CMAKE_INSTALL_INCLUDEDIR} OUTPUT_VARIABLE MHA_PC_INCLUDEDIR)
string(REPLACE ">=" " >= " MHA_PC_REQUIRES "${MHA_JANSSON}, ${MHA_UTF8PROC}, ${MHA_PCRE2}")
configure_file(cmake/mha.pc.in ${PROJECT_BINARY_DIR}/mha.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/mha.pc DESTINATION ${pc_dir})

# packages.cmake - CPack settings: Debian packages (libmha0, libmha-dev, mha) and one .tar.gz. tools/package.sh builds them.
# The component `mpi` is not packaged, because its files require the MPI implementation they were built with.
#
# To install libraries in Debian's multiarch directory, configure with -DCMAKE_INSTALL_PREFIX=/usr (preset package).
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME mha)
set(CPACK_PACKAGE_VENDOR "mha")
set(CPACK_PACKAGE_CONTACT "mha maintainers <maintainers@example.org>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGE_FILE_NAME mha-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/packages_generator.cmake)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/packages_documents.cmake)
set(CPACK_COMPONENTS_ALL libraries development)
if(MHA_PROGRAM)
  list(APPEND CPACK_COMPONENTS_ALL program)
endif()

# ---- Debian ----
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

set(CPACK_DEBIAN_LIBRARIES_PACKAGE_NAME libmha${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_LIBRARIES_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARIES_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/debian/triggers)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_COMPONENT_LIBRARIES_DESCRIPTION "Multi-head attention in C (shared libraries)
libmha computes attention on the CPU, loads checkpoints of Hugging Face
transformers, trains, and measures, scores and prunes attention heads.
libmha_attn contains only the attention operator, and depends only on the
C library.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libmha-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "${CPACK_DEBIAN_LIBRARIES_PACKAGE_NAME} (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}), libc6-dev, libpcre2-dev, libutf8proc-dev")
if(MHA_KISSFFT)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libkissfft-dev")
endif()
foreach(package ${MHA_IMAGE_PACKAGES})
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", ${package}-dev")
endforeach()
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Multi-head attention in C (development files)
This package contains the headers, the static libraries, pkg-config files
and a CMake package for libmha and libmha_attn.")

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME mha)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "Multi-head attention from the command line
mha embeds, scores and generates text with checkpoints of Hugging Face
transformers, trains models and tokenizers, and measures, draws, scores and
prunes attention heads. It contains a small built-in model.")

include(CPack)

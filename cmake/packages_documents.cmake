# packages_documents.cmake - adds license and changelogs to the staged files of a package; run by cpack once per generator.
# For Debian packages, it also compresses the manual pages. Dates are SOURCE_DATE_EPOCH if it is set.
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH sources)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)

# Compresses FILE to FILE.gz, without storing its name and time.
function(compress file)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Writes the documents of the Debian package of a component to its staged files.
function(add_debian_documents component)
  string(TOUPPER ${component} name)
  set(usr ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  set(documents ${usr}/share/doc/${CPACK_DEBIAN_${name}_PACKAGE_NAME})
  configure_file(${sources}/packaging/debian/copyright ${documents}/copyright COPYONLY)
  configure_file(${sources}/packaging/debian/changelog.in ${documents}/changelog.Debian @ONLY)
  configure_file(${sources}/CHANGELOG.md ${documents}/changelog COPYONLY)
  file(CHMOD ${documents}/copyright PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  file(GLOB pages ${usr}/share/man/man1/*.1)
  foreach(file IN LISTS pages ITEMS ${documents}/changelog.Debian ${documents}/changelog)
    file(CHMOD ${file} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    compress(${file})
  endforeach()
endfunction()

if(CPACK_GENERATOR STREQUAL "DEB")
  foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    add_debian_documents(${component})
  endforeach()
else()
  file(COPY ${sources}/LICENSE ${sources}/CHANGELOG.md ${sources}/README.md
       DESTINATION ${CPACK_TEMPORARY_DIRECTORY}/libraries/${CPACK_PACKAGE_FILE_NAME}/share/doc/mha)
endif()

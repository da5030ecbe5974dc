# man.cmake - manual pages from --help: mha(1), and one per command of cli/commands.h. Made where help2man is and the program can
# run here; without it there are none, and nothing else changes.
find_program(MHA_HELP2MAN help2man)
if(MHA_HELP2MAN AND NOT CMAKE_CROSSCOMPILING)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS cli/commands.h)
  file(READ cli/commands.h table)
  string(REGEX MATCHALL "\n +X\\([a-z]+\\)" commands "${table}")
  list(TRANSFORM commands REPLACE "[^a-z]" "")
  set(pages)
  # mha_man_page(NAME COMMAND): the page NAME.1 of what COMMAND --help prints.
  function(mha_man_page name command)
    set(page ${PROJECT_BINARY_DIR}/man/${name}.1)
    add_custom_command(OUTPUT ${page}
      COMMAND ${MHA_HELP2MAN} --no-info --no-discard-stderr --version-string=${PROJECT_VERSION}
              --name "multi-head attention in C" --output=${page} "$<TARGET_FILE:mha>${command}"
      DEPENDS mha VERBATIM)
    set(pages ${pages} ${page} PARENT_SCOPE)
  endfunction()
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man)
  mha_man_page(mha "")
  foreach(command ${commands})
    mha_man_page(mha-${command} " ${command}")
  endforeach()
  add_custom_target(man DEPENDS ${pages})
  # Made by `ninja man`, installed if they have been made.
  install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
endif()

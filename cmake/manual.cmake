# manual.cmake - manual pages mha(1) and mha-COMMAND(1), and completions for bash, zsh and fish. The program that was just built
# writes them, and they are always installed with it, except by a cross build without an emulator.
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  message(WARNING "Without CMAKE_CROSSCOMPILING_EMULATOR, the program cannot write its manual pages and completions: installing none.")
  return()
endif()
set(manual ${PROJECT_BINARY_DIR}/manual)
add_custom_command(OUTPUT ${manual}/stamp
  COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/man_pages.sh ${manual} ${PROJECT_VERSION} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:mha>
  COMMAND ${CMAKE_COMMAND} -E touch ${manual}/stamp
  DEPENDS mha cmake/man_pages.sh cmake/man_page.awk VERBATIM)
add_custom_target(manual ALL DEPENDS ${manual}/stamp)

install(DIRECTORY ${manual}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${manual}/completion/mha DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${manual}/completion/_mha DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${manual}/completion/mha.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

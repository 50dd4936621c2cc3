# What `cmake --install` and CPack put into the packages that scripts/package.sh builds.
#
# The programs and the client library look for shared libraries in the folder ../lib, relative to their own folder, where
# the wheel and the tarball have them. DT_RPATH is set instead of DT_RUNPATH, because it also applies to the dependencies
# of those libraries.
set(PUSHPULL_PROGRAMS ps_server worker evaluator exporter make_records detect psctl)
foreach(target ${PUSHPULL_PROGRAMS} pushpull_client_shared)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endforeach()
install(TARGETS ${PUSHPULL_PROGRAMS} RUNTIME DESTINATION bin)
install(TARGETS pushpull_client_shared LIBRARY DESTINATION lib)
install(FILES worker/client/pushpull_client.h DESTINATION include/pushpull)
install(FILES LICENSE README.md DESTINATION share/doc/pushpull)
install(FILES LICENSE DESTINATION share/doc/pushpull RENAME copyright)  # the name that Debian asks for

set(CPACK_PACKAGE_NAME pushpull)
set(CPACK_PACKAGE_VENDOR "The Pushpull authors")
set(CPACK_PACKAGE_CONTACT "The Pushpull authors <pushpull@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Parameter-server trainer for convolutional networks")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
include(CPack)

# The install tree: headers, libraries, the command, and what find_package(regard) and pkg-config read.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
set(installed regard)
if(REGARD_BUILD_TOOLS)
  list(APPEND installed regard_tools)
  install(TARGETS regard_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # Made by the command itself: not there when it was built for a machine that this one cannot play.
  install(FILES ${PROJECT_BINARY_DIR}/manuals/regard.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
  install(FILES ${PROJECT_BINARY_DIR}/manuals/regard DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions OPTIONAL)
  install(FILES ${PROJECT_BINARY_DIR}/manuals/_regard DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions OPTIONAL)
  install(FILES ${PROJECT_BINARY_DIR}/manuals/regard.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d OPTIONAL)
endif()
install(TARGETS ${installed} EXPORT regard_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT regard_targets NAMESPACE regard:: FILE regardTargets.cmake DESTINATION ${package_dir})

# The licence goes where Debian keeps those of packages.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/regard RENAME copyright)

# Headers of the tools library are left out where that library is.
set(tools_headers diagnose.h io.h problem.h)
file(GLOB headers RELATIVE ${PROJECT_SOURCE_DIR}/include/regard ${PROJECT_SOURCE_DIR}/include/regard/*.h)
foreach(header IN LISTS headers)
  if(REGARD_BUILD_TOOLS OR NOT header IN_LIST tools_headers)
    install(FILES ${PROJECT_SOURCE_DIR}/include/regard/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/regard)
  endif()
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/regardConfig.cmake.in ${PROJECT_BINARY_DIR}/regardConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/regardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/regardConfig.cmake ${PROJECT_BINARY_DIR}/regardConfigVersion.cmake DESTINATION ${package_dir})
if(NOT BUILD_SHARED_LIBS)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindHWY.cmake ${PROJECT_SOURCE_DIR}/cmake/FindCBLAS.cmake DESTINATION ${package_dir})
endif()

# Paths from where the file lies, so that `cmake --install --prefix` and moved trees need no other; absolute folders stay as they are.
set(pc_prefix ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  set(pc_prefix "\${pcfiledir}/${up}")
endif()
string(REGEX REPLACE "/$" "" pc_prefix ${pc_prefix})
foreach(folder libdir includedir)
  string(TOUPPER ${folder} upper)
  set(pc_${folder} ${CMAKE_INSTALL_${upper}})
  if(NOT IS_ABSOLUTE ${pc_${folder}})
    string(PREPEND pc_${folder} "\${prefix}/")
  endif()
endforeach()
get_filename_component(cblas_name ${CBLAS_LIBRARY} NAME_WE)
string(REGEX REPLACE "^lib" "" cblas_name ${cblas_name})
set(pc_files regard)
if(REGARD_BUILD_TOOLS)
  list(APPEND pc_files regard-tools)
endif()
foreach(name IN LISTS pc_files)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# `cpack` makes a Debian package of all of it.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME regard)
set(CPACK_PACKAGE_CONTACT "The regard authors")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src)  # where the tools library finds the other one
set(CPACK_DEBIAN_PACKAGE_SECTION science)
include(CPack)

# The install tree: headers, libraries, the command, and what find_package(regard) and pkg-config read.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
set(installed regard)
if(REGARD_BUILD_TOOLS)
  list(APPEND installed regard_tools)
  install(TARGETS regard_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS ${installed} EXPORT regard_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT regard_targets NAMESPACE regard:: FILE regardTargets.cmake DESTINATION ${package_dir})

# Headers of the tools library are left out where that library is.
set(tools_headers diagnose.h io.h problem.h report.h)
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

configure_file(${PROJECT_SOURCE_DIR}/cmake/regard.pc.in ${PROJECT_BINARY_DIR}/regard.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/regard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

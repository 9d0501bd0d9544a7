# bin/ programs, lib/ libattune.so and the CMake package, include/attune/ public headers, share/attune/presets.
# Headers keep the paths they have here, below include/attune, so that attune::attune adds that folder.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/attune)

install(TARGETS attune EXPORT attune-targets)
install(TARGETS attune-compile-worker attune-measure-worker attune-tune-worker)
if(ATTUNE_BUILD_CLI)
  install(TARGETS attune-cli)
endif()
install(FILES runtime/attune.h runtime/attune_c.h runtime/attune_gemma4_c.h runtime/attune_model_c.h runtime/gemma4_attention.h
              runtime/gemma4_geometry.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attune/runtime)
install(FILES templates/config.h templates/int_types.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attune/templates)
install(FILES common/error.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attune/common)
install(DIRECTORY presets/ DESTINATION ${CMAKE_INSTALL_DATADIR}/attune/presets FILES_MATCHING PATTERN *.yaml)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/attune)

install(EXPORT attune-targets NAMESPACE attune:: DESTINATION ${package_folder})
write_basic_package_version_file(attune-config-version.cmake COMPATIBILITY SameMinorVersion)
configure_package_config_file(cmake/attune-config.cmake.in attune-config.cmake INSTALL_DESTINATION ${package_folder})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attune-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/attune-config-version.cmake
        DESTINATION ${package_folder})

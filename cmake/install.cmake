# bin/ programs, lib/ libattune.so and the CMake package, include/attune/ public headers, share/attune/presets.
# Headers keep the paths they have here, below include/attune, so that attune::attune adds that folder.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/attune)

install(TARGETS attune EXPORT attune-targets)
install(TARGETS attune-compile-worker attune-measure-worker attune-tune-worker)
if(ATTUNE_BUILD_CLI)
  install(TARGETS attune-cli)
endif()
# The C interfaces; runtime/attune.h, runtime/gemma4_attention.h and runtime/generate.h, with what they include.
set(public_headers
  common/error.h common/text.h
  jit/binary.h jit/device.h jit/device_info.h jit/tensor_map.h
  runtime/acceptance.h runtime/attune.h runtime/attune_c.h runtime/attune_gemma4_c.h runtime/attune_model_c.h
  runtime/checkpoint.h runtime/drafter.h runtime/eagle3_config.h runtime/eagle3_drafter.h runtime/eagle3_head.h
  runtime/gemma4_attention.h runtime/gemma4_geometry.h runtime/gemma4_model.h runtime/generate.h runtime/mapped_file.h
  runtime/model_config.h runtime/ngram_drafter.h runtime/safetensors.h runtime/sampling.h runtime/speculation_stats.h
  runtime/stop_rule.h runtime/weights.h
  templates/config.h templates/family.h templates/int_types.h templates/launch_plan.h templates/linear_config.h templates/linear_shape.h
  templates/params.h templates/problem.h)
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attune/${folder})
endforeach()
install(DIRECTORY presets/ DESTINATION ${CMAKE_INSTALL_DATADIR}/attune/presets FILES_MATCHING PATTERN *.yaml)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/attune)

install(EXPORT attune-targets NAMESPACE attune:: DESTINATION ${package_folder})
write_basic_package_version_file(attune-config-version.cmake COMPATIBILITY SameMinorVersion)
configure_package_config_file(cmake/attune-config.cmake.in attune-config.cmake INSTALL_DESTINATION ${package_folder})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attune-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/attune-config-version.cmake
        DESTINATION ${package_folder})

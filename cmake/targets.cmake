# How every target of the project is compiled, and where it is put.
add_library(attune_flags INTERFACE)
target_compile_options(attune_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(attune_flags INTERFACE -Wno-restrict)  # GCC bug 105651: false on "text" + std::string
endif()
if(ATTUNE_WERROR)
  target_compile_options(attune_flags INTERFACE -Werror)
endif()
if(ATTUNE_SANITIZE)
  target_compile_options(attune_flags INTERFACE -fsanitize=${ATTUNE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(attune_flags INTERFACE -fsanitize=${ATTUNE_SANITIZE})
endif()
if(ATTUNE_STATIC_DEPS)
  # Sections let the linker drop what a program does not use: bundles carry many programs.
  target_compile_options(attune_flags INTERFACE -ffunction-sections -fdata-sections)
  target_link_options(attune_flags INTERFACE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
endif()

if(PROJECT_IS_TOP_LEVEL)
  # The build tree is laid out as an installation is, so that programs find each other the same way in both.
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/attune)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/presets ${PROJECT_BINARY_DIR}/share/attune/presets SYMBOLIC)
  set(CMAKE_INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
  find_program(CCACHE ccache)
  if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  endif()
endif()

# attune_library(<name> SOURCES ... PUBLIC ... PRIVATE ...): a static library of one folder.
function(attune_library name)
  cmake_parse_arguments(LIB "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${LIB_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${LIB_PUBLIC} PRIVATE attune_flags ${LIB_PRIVATE})
endfunction()

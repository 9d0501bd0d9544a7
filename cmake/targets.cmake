# How every target of the project is compiled.
add_library(attune_flags INTERFACE)
target_compile_options(attune_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow)
if(ATTUNE_WERROR)
  target_compile_options(attune_flags INTERFACE -Werror)
endif()
if(ATTUNE_SANITIZE)
  target_compile_options(attune_flags INTERFACE -fsanitize=${ATTUNE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(attune_flags INTERFACE -fsanitize=${ATTUNE_SANITIZE})
endif()

# attune_library(<name> SOURCES ... PUBLIC ... PRIVATE ...): a static library of one folder.
function(attune_library name)
  cmake_parse_arguments(LIB "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${LIB_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${LIB_PUBLIC} PRIVATE attune_flags ${LIB_PRIVATE})
endfunction()

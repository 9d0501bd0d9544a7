# Targets `format` and `format-check`: clang-format over the tracked sources, with the .clang-format of the root.
if(PROJECT_IS_TOP_LEVEL)
  set(files "git ls-files '*.h' '*.cpp' '*.cuh' '*.c'")
  add_custom_target(format
    COMMAND sh -c "${files} | xargs clang-format -i"
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
  add_custom_target(format-check
    COMMAND sh -c "${files} | xargs clang-format --dry-run --Werror"
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
endif()

# Third-party libraries, each as one imported target that honours ATTUNE_STATIC_DEPS.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json REQUIRED)

# fmt in headers alone takes a quarter to a half of what a file takes to compile; Debian ships no static fmt.
add_library(attune_ext_fmt INTERFACE)
target_link_libraries(attune_ext_fmt INTERFACE $<IF:$<BOOL:${ATTUNE_STATIC_DEPS}>,fmt::fmt-header-only,fmt::fmt>)
add_library(attune_ext::fmt ALIAS attune_ext_fmt)

# attune_find_library(<target> <name> <header>): the library and its headers as target attune_ext::<target>.
function(attune_find_library target name header)
  find_path(ATTUNE_${target}_INCLUDE ${header} REQUIRED)
  if(ATTUNE_STATIC_DEPS)
    find_library(ATTUNE_${target}_STATIC lib${name}.a REQUIRED)
    set(library ${ATTUNE_${target}_STATIC})
  else()
    find_library(ATTUNE_${target}_LIBRARY ${name} REQUIRED)
    set(library ${ATTUNE_${target}_LIBRARY})
  endif()
  add_library(attune_ext_${target} INTERFACE)
  target_include_directories(attune_ext_${target} SYSTEM INTERFACE ${ATTUNE_${target}_INCLUDE})
  target_link_libraries(attune_ext_${target} INTERFACE ${library} ${ARGN})
  add_library(attune_ext::${target} ALIAS attune_ext_${target})
endfunction()

attune_find_library(xxhash xxhash xxhash.h)
attune_find_library(zstd zstd zstd.h)
attune_find_library(sqlite3 sqlite3 sqlite3.h Threads::Threads ${CMAKE_DL_LIBS} m)
attune_find_library(sqlitecpp SQLiteCpp SQLiteCpp/SQLiteCpp.h attune_ext::sqlite3)
attune_find_library(yaml yaml-cpp yaml-cpp/yaml.h)
attune_find_library(boost_context boost_context boost/context/detail/fcontext.hpp)
if(NOT ATTUNE_STATIC_DEPS)  # Debian ships no static SentencePiece: bundles read tokenizer.json alone
  attune_find_library(sentencepiece sentencepiece sentencepiece_processor.h)
endif()

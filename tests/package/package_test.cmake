# cmake -DBUILD=... -DWORK=... -DCONSUMER=... -DGENERATOR=... -DCXX=... -DNM=... -P package_test.cmake
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "a step failed: command='${ARGN}' code=${code}\n${text}")
  endif()
  set(text "${text}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
# A moved installation has to work as well: nothing may point back to where it was installed.
file(RENAME ${WORK}/first ${WORK}/moved)

run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_PREFIX_PATH=${WORK}/moved)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)
if(NOT text MATCHES "refused as it should be")
  message(FATAL_ERROR "the consumer did not get an error across the library: output='${text}'")
endif()
if(NOT text MATCHES "C and C\\+\\+ read the same geometry")
  message(FATAL_ERROR "the consumer did not read a Gemma 4 geometry: output='${text}'")
endif()

if(NOT text MATCHES "no checkpoint, no model")
  message(FATAL_ERROR "the consumer did not get as far as a checkpoint: output='${text}'")
endif()

if(EXISTS ${WORK}/moved/bin/attune)  # not with ATTUNE_BUILD_CLI=OFF
  run(${WORK}/moved/bin/attune --version)
endif()

file(GLOB_RECURSE library ${WORK}/moved/libattune.so)
run(${NM} -D --defined-only -C ${library})
string(REGEX MATCHALL "[^\n]+" symbols "${text}")
set(foreign ${symbols})
set(classes "Engine|Attention|Options|RopeGeometry|Gemma4[A-Z][a-z]+|Generator|ModelConfig|Checkpoint|Eagle3[A-Z][a-z]+|NgramDrafter|MappedFile")
list(FILTER foreign EXCLUDE REGEX " [A-Za-z] (attune_[a-z0-9_]+|attune::(${classes})::[~a-zEAGN].*)$")
list(FILTER foreign EXCLUDE REGEX " [A-Za-z] ((vtable|typeinfo) for attune::(Eagle3|Ngram)Drafter|attune::name_of\\(attune::GenerateEnd\\))$")
if(foreign OR NOT symbols)
  message(FATAL_ERROR "libattune.so exports more than its interface, or nothing: symbols='${foreign}'")
endif()

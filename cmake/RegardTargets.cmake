# How our targets are compiled, and the helpers the rooms' CMakeLists use.

# regard_options: flags of every target that is built here; not exported.
#   -ffp-contract=off  fused multiply-adds stand where the source writes them, so that two instances of one template give the
#                      same bits. -march and -ffast-math stay out: Highway raises the target where it is wanted.
add_library(regard_options INTERFACE)
target_compile_features(regard_options INTERFACE cxx_std_20)
target_compile_options(regard_options INTERFACE -ffp-contract=off -fno-math-errno)
target_include_directories(regard_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
if(REGARD_DEVELOPER_MODE)
  target_compile_options(regard_options INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror)
  # GCC 12 sees overlapping copies in "text" + std::string, wrongly (its bug 105651).
  target_compile_options(regard_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  # GCC's manual: sanitizers make it see variables that may not be set where all are. The dev preset looks without them.
  if(REGARD_SANITIZE)
    target_compile_options(regard_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
  # Clang warns of what std::stable_sort of GCC 12's library calls itself, and of members that {.causal = true} leaves out on purpose.
  target_compile_options(regard_options INTERFACE
                         $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations;-Wno-missing-designated-field-initializers>)
endif()
if(REGARD_SANITIZE)  # everything, since a program must bring the sanitizer that its libraries want
  add_compile_options(-fsanitize=${REGARD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${REGARD_SANITIZE})
endif()
if(REGARD_FUZZ)  # everything tells libFuzzer where it has been
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(REGARD_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# regard_apart(SOURCES...): sources of this folder that are compiled by themselves where CMAKE_UNITY_BUILD merges others, as the presets do:
# they share names of helpers with their neighbours.
function(regard_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# regard_room(NAME LIBRARY sources...): the sources of one room, compiled once, for the library (regard or regard_tools) and for
# the tests, which may look inside.
function(regard_room name library)
  add_library(regard_room_${name} OBJECT ${ARGN})
  target_include_directories(regard_room_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(regard_room_${name} PUBLIC regard_options OpenMP::OpenMP_CXX)
  set_property(GLOBAL APPEND PROPERTY ${library}_ROOMS regard_room_${name})
endfunction()

# regard_few_pointer_checks(TARGET): the undefined-behaviour checks that look at each pointer double the time to compile, and take minutes in
# vector code, which is thousands of inlined loads. They are made in the rooms core, io, attention, reference, staged, summary and nn, and in the
# command; elsewhere the address sanitizer has to do.
function(regard_few_pointer_checks target)
  if(REGARD_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,object-size,pointer-overflow,vptr)
  endif()
endfunction()

# regard_optimize_lightly(TARGET): -O1 in a Release build, for code that nobody waits for: tests, parsing, printing. It compiles in two thirds
# of the time, a part of the quick start.
function(regard_optimize_lightly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# regard_allow_left_out_members(TARGET): no warning where {.causal = true} leaves out members without an initializer of their own, on purpose.
function(regard_allow_left_out_members target)
  target_compile_options(${target} PRIVATE -Wno-missing-field-initializers)
endfunction()

# regard_test(NAME LABEL sources...): one GoogleTest program that links every room directly. Unit tests live beside their unit.
#   LABEL fast: all of them together take under a minute on two cores.  slow: the rest.
function(regard_test name label)
  if(NOT REGARD_DEVELOPER_MODE)
    return()
  endif()
  add_executable(${name} ${ARGN})
  if(NOT CMAKE_CURRENT_SOURCE_DIR STREQUAL "${PROJECT_SOURCE_DIR}/src/kernels")  # those hold vector code, and try it as it is delivered
    regard_optimize_lightly(${name})
    regard_allow_left_out_members(${name})
  endif()
  regard_few_pointer_checks(${name})
  target_link_libraries(${name} PRIVATE regard_everything regard_options GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${label})
endfunction()

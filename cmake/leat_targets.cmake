# SPDX-License-Identifier: Apache-2.0
# One function per kind of target, so flags, labels and install rules are decided once.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

add_library(leat_flags INTERFACE)
target_compile_definitions(leat_flags INTERFACE _GNU_SOURCE LEAT_VERSION_TEXT="${PROJECT_VERSION}")
target_compile_options(leat_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes
  -Wmissing-prototypes -Wvla -Wundef -Werror=implicit-fallthrough
  $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation> # messages and paths are cut to fit on purpose
  -fno-common -fno-omit-frame-pointer -fvisibility=hidden)
target_include_directories(leat_flags INTERFACE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/base/include ${PROJECT_SOURCE_DIR}/ipc/include
  ${PROJECT_SOURCE_DIR}/kernels/include)
target_link_libraries(leat_flags INTERFACE Threads::Threads)

set(LEAT_SANITIZE "" CACHE STRING "Comma list for -fsanitize, for example address,undefined")
if(LEAT_SANITIZE)
  target_compile_options(leat_flags INTERFACE -fsanitize=${LEAT_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(leat_flags INTERFACE -fsanitize=${LEAT_SANITIZE})
  find_program(LEAT_GOLD ld.gold)
  if(LEAT_GOLD)
    target_link_options(leat_flags INTERFACE -fuse-ld=gold) # links so much in half the time
  endif()
endif()
option(LEAT_ALL_ROUNDS "Tests take all of their random rounds with a sanitizer, too" OFF)
if(LEAT_ALL_ROUNDS)
  target_compile_definitions(leat_flags INTERFACE LEAT_ALL_ROUNDS)
endif()
if(LEAT_SANITIZE MATCHES "thread")
  # GCC 12 inlines fixed-size memcpy behind TSan's back, and with it a racy ring passes.
  # TSan does not model fences either: ipc/doorbell.h uses seq_cst accesses instead of them.
  target_compile_options(leat_flags INTERFACE -fno-builtin-memcpy -Wno-tsan)
endif()

function(_leat_link target)
  set(libs ${ARGN})
  list(TRANSFORM libs PREPEND leat_ REGEX "^(base|ipc|client|sched|kernels|runtime|simulate)$")
  target_link_libraries(${target} PUBLIC leat_flags ${libs})
endfunction()

# leat_one_thread(<c>...)   of this folder: work of one thread on what it alone writes, and what others read is told by who
# calls it. ThreadSanitizer does not look at each of its accesses, which takes 15 times as long.
function(leat_one_thread)
  if(LEAT_SANITIZE MATCHES "thread")
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS "-fno-sanitize=thread")
  endif()
endfunction()

# leat_inner_copies(<target> <c>...)   of this folder: they read four bytes at a time by memcpy() in their innermost loops, where a call
# of ThreadSanitizer's for each would be most of the time of tests.
function(leat_inner_copies target)
  if(LEAT_SANITIZE MATCHES "thread")
    set_property(SOURCE ${ARGN} TARGET_DIRECTORY ${target} APPEND PROPERTY COMPILE_DEFINITIONS memcpy=__builtin_memcpy)
  endif()
endfunction()

# leat_library(<name> SOURCES <c>... [DEPENDS <layer>...])
function(leat_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
  add_library(leat_${name} STATIC ${arg_SOURCES})
  add_library(leat::${name} ALIAS leat_${name})
  _leat_link(leat_${name} ${arg_DEPENDS})
endfunction()

# leat_tool(<name> SOURCES <c>... [DEPENDS <layer>...])   an executable that is not a test
function(leat_tool name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
  add_executable(${name} ${arg_SOURCES})
  _leat_link(${name} ${arg_DEPENDS})
endfunction()

# What ThreadSanitizer is there for: the tests labelled threads or system, and what they start.
add_custom_target(leat_threaded_tests)

# leat_test(<name> SOURCES <c>... [DEPENDS <layer>...] [ARGS <arg>...] [LABEL <label>])
# Exit code 77 means skipped, with the reason printed. Several labels are one argument: "unit;threads". What commands say and
# do is labelled commands where other tests have threads hand over the same: test_policies (test_kept_policies, test_learned_shares),
# test_bench (test_queries), test_floors (test_app, test_classes), check_simulate* (test_simulate_plan, test_switching).
function(leat_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL" "SOURCES;DEPENDS;ARGS")
  add_executable(${name} ${arg_SOURCES})
  _leat_link(${name} ${arg_DEPENDS})
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS})
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABEL}" SKIP_RETURN_CODE 77)
  if(arg_LABEL MATCHES "threads|system")
    add_dependencies(leat_threaded_tests ${name})
  endif()
endfunction()

# leat_test_seconds(<name> <seconds>...)   of the tests of a folder that take longest, about how long each takes. ctest -j
# starts with those, so that none is alone at the end. A build may be without some of them.
function(leat_test_seconds)
  while(ARGN)
    list(POP_FRONT ARGN name seconds)
    if(TEST ${name})
      set_tests_properties(${name} PROPERTIES COST ${seconds})
    endif()
  endwhile()
endfunction()

# A fuzz target is libFuzzer under clang, and a corpus replay test under every compiler.
function(leat_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CORPUS" "SOURCES;DEPENDS")
  if(NOT arg_CORPUS)
    set(arg_CORPUS ${name})
  endif()
  file(GLOB corpus CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${arg_CORPUS}/*)
  leat_test(${name}_replay SOURCES ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.c
            DEPENDS ${arg_DEPENDS} ARGS ${corpus} LABEL fuzz)
  if(LEAT_SANITIZE MATCHES "fuzzer-no-link") # the fuzz preset instruments every library too
    add_executable(${name} ${arg_SOURCES})
    _leat_link(${name} ${arg_DEPENDS})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  endif()
endfunction()

# A bench also runs as a test in its --smoke size, so it cannot rot between measurements.
function(leat_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
  add_executable(${name} ${arg_SOURCES})
  _leat_link(${name} ${arg_DEPENDS})
  add_test(NAME ${name}_smoke COMMAND ${name} --smoke)
  set_tests_properties(${name}_smoke PROPERTIES LABELS bench-smoke SKIP_RETURN_CODE 77)
endfunction()

# SPDX-License-Identifier: Apache-2.0
# leat_bench_lemon: LEMON's network simplex, in C++ like the gRPC peer and like it without sanitizers.
pkg_check_modules(LEAT_BENCH_LIBLEMON QUIET lemon)
if(LEAT_SANITIZE OR NOT LEAT_BENCH_LIBLEMON_FOUND)
  leat_bench_peer(LEAT_BENCH_LEMON "liblemon-dev without sanitizers" "")
  set(LEAT_BENCH_LIBLEMON_VERSION "-")
else()
  leat_bench_peer(LEAT_BENCH_LEMON liblemon-dev "${LEAT_BENCH_LIBLEMON_VERSION}")
  enable_language(CXX)
  add_library(leat_bench_lemon STATIC lap_lemon.cc)
  target_compile_features(leat_bench_lemon PRIVATE cxx_std_17)
  set_source_files_properties(lap_lemon.cc PROPERTIES COMPILE_OPTIONS "-O3") # as ours
endif()

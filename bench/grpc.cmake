# SPDX-License-Identifier: Apache-2.0
# leat_bench_grpc: the gRPC peer, the one place with C++, which is enabled only when gRPC is there. Its objects carry no
# sanitizer, so a sanitized build does without.
set(LEAT_BENCH_GRPC 0)
find_program(LEAT_PROTOC protoc)
find_program(LEAT_GRPC_PLUGIN grpc_cpp_plugin)
pkg_check_modules(LEAT_BENCH_GRPCPP QUIET IMPORTED_TARGET grpc++)
if(LEAT_SANITIZE)
  message(STATUS "bench: the gRPC peer is not built with sanitizers")
elseif(NOT LEAT_PROTOC OR NOT LEAT_GRPC_PLUGIN OR NOT LEAT_BENCH_GRPCPP_FOUND)
  message(STATUS "bench: the gRPC peer is not built: libgrpc++-dev and protobuf-compiler-grpc are not both installed")
else()
  set(LEAT_BENCH_GRPC 1)
  message(STATUS "bench: libgrpc++-dev ${LEAT_BENCH_GRPCPP_VERSION}")
  enable_language(CXX)
  set(grpc_dir ${PROJECT_BINARY_DIR}/generated/bench_grpc)
  file(MAKE_DIRECTORY ${grpc_dir})
  add_custom_command(
    OUTPUT ${grpc_dir}/peer_grpc.pb.cc ${grpc_dir}/peer_grpc.grpc.pb.cc ${grpc_dir}/peer_grpc.grpc.pb.h
    COMMAND ${LEAT_PROTOC} --proto_path=${CMAKE_CURRENT_SOURCE_DIR} --cpp_out=${grpc_dir} --grpc_out=${grpc_dir}
            --plugin=protoc-gen-grpc=${LEAT_GRPC_PLUGIN} peer_grpc.proto
    DEPENDS peer_grpc.proto
    COMMENT "Generating peer_grpc.pb.cc"
    VERBATIM)
  add_library(leat_bench_grpc STATIC peer_grpc.cc ${grpc_dir}/peer_grpc.pb.cc ${grpc_dir}/peer_grpc.grpc.pb.cc)
  target_compile_features(leat_bench_grpc PRIVATE cxx_std_17)
  target_include_directories(leat_bench_grpc PRIVATE ${grpc_dir})
  target_link_libraries(leat_bench_grpc PRIVATE PkgConfig::LEAT_BENCH_GRPCPP protobuf)
endif()

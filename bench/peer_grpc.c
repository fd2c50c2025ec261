/* SPDX-License-Identifier: Apache-2.0 */
/* The C side of bench/peer_grpc.cc. */
#include "bench/roundtrip.h"

#if LEAT_BENCH_GRPC
void bench_grpc_serve(const char *address);
void *bench_grpc_connect(const char *address);
void bench_grpc_trip(void *connection, const void *request, size_t bytes, struct bench_answer *ret_answer);

struct bench_transport bench_grpc = {.name = "gRPC unix",
                                     .version = LEAT_BENCH_GRPC_VERSION,
                                     .serve = bench_grpc_serve,
                                     .connect = bench_grpc_connect,
                                     .trip = bench_grpc_trip};
#else
struct bench_transport bench_grpc = {
    .name = "gRPC unix", .missing = "not built: libgrpc++-dev and protobuf-compiler-grpc are needed, without sanitizers"};
#endif

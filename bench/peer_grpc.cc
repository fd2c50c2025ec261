// SPDX-License-Identifier: Apache-2.0
// gRPC, synchronous unary calls over a Unix socket. C++ because that is gRPC's own language.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "peer_grpc.grpc.pb.h"

// What roundtrip.h has in C17, which C++ cannot read.
struct bench_answer {
    std::uint64_t sequence, sum;
    std::uint64_t pad[6];
};
extern "C" {
std::uint64_t bench_sum(const void *bytes, std::size_t size);
void bench_grpc_serve(const char *address);
void *bench_grpc_connect(const char *address);
void bench_grpc_trip(void *connection, const void *request, std::size_t bytes, bench_answer *ret_answer);
}

namespace {

class EchoService final : public leat_bench::Echo::Service {
    grpc::Status Trip(grpc::ServerContext *, const leat_bench::Request *request, leat_bench::Answer *answer) override
    {
        const std::string &payload = request->payload();
        bench_answer words{};
        if (payload.size() < sizeof(words.sequence)) {
            return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "a request starts with its sequence");
        }
        std::memcpy(&words.sequence, payload.data(), sizeof(words.sequence));
        words.sum = bench_sum(payload.data(), payload.size());
        answer->set_payload(&words, sizeof(words));
        return grpc::Status::OK;
    }
};

struct Connection {
    std::unique_ptr<leat_bench::Echo::Stub> stub;
    leat_bench::Request request;
    leat_bench::Answer answer;
};

} // namespace

void
bench_grpc_serve(const char *address)
{
    EchoService service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(std::string("unix:") + address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (server == nullptr) {
        std::abort();
    }
    server->Wait();
}

void *
bench_grpc_connect(const char *address)
{
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 1); // the server may not be there yet
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1);
    const auto channel =
        grpc::CreateCustomChannel(std::string("unix:") + address, grpc::InsecureChannelCredentials(), arguments);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(60))) {
        std::abort();
    }
    return new Connection{leat_bench::Echo::NewStub(channel), {}, {}};
}

void
bench_grpc_trip(void *connection, const void *request, std::size_t bytes, bench_answer *ret_answer)
{
    auto *state = static_cast<Connection *>(connection);
    grpc::ClientContext context;
    state->request.set_payload(request, bytes);
    const grpc::Status status = state->stub->Trip(&context, state->request, &state->answer);
    if (!status.ok() || state->answer.payload().size() != sizeof(*ret_answer)) {
        std::abort();
    }
    std::memcpy(ret_answer, state->answer.payload().data(), sizeof(*ret_answer));
}

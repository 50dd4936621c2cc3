// Calls of a server whose messages are plain bytes, and a health probe made of them.
#ifndef PUSHPULL_TESTS_TESTKIT_RAW_CALL_H_
#define PUSHPULL_TESTS_TESTKIT_RAW_CALL_H_

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pushpull {

// Makes a raw call with one reply. Returns its status and the bytes of the reply.
inline std::pair<grpc::Status, std::string> CallRaw(const std::string& address,
                                                    const std::string& method,
                                                    const std::string& request) {
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  grpc::CompletionQueue queue;
  auto call = stub.PrepareCall(&context, method, &queue);
  void* tag;
  bool ok;
  const auto next = [&] { return queue.Next(&tag, &ok); };
  call->StartCall(nullptr);
  next();
  const grpc::Slice slice(request);
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  next();
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  next();
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  queue.Shutdown();
  while (next()) {
  }
  std::string bytes;
  grpc::Slice whole;
  if (reply.Valid() && reply.DumpToSingleSlice(&whole).ok()) {
    bytes.assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
  }
  return {status, bytes};
}

// Sends HealthCheckRequest{service = name}. Returns the reply's status field (1: serving, 2: not
// serving), or 0 if the service is unknown.
inline int Health(const std::string& address, const std::string& name) {
  std::string request;
  if (!name.empty()) request = absl::StrCat("\x0a", std::string(1, char(name.size())), name);
  const auto [status, reply] = CallRaw(address, "/grpc.health.v1.Health/Check", request);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) return 0;
  EXPECT_TRUE(status.ok()) << status.error_message();
  return reply.size() == 2 && reply[0] == 8 ? reply[1] : -1;
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_RAW_CALL_H_

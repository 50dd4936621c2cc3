// A job that is served over gRPC, and programs that train in it by the functions of
// pushpull_client.h.
#ifndef PUSHPULL_TESTS_WORKER_CLIENT_GRPC_CLIENT_TESTING_H_
#define PUSHPULL_TESTS_WORKER_CLIENT_GRPC_CLIENT_TESTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ps_server/transport/grpc_ps_server.h"
#include "tests/testkit/job/relay_handler.h"
#include "tests/testkit/job/test_job.h"
#include "worker/client/pushpull_client.h"

namespace pushpull {

// A TestServer behind a gRPC server for each task, on a unix socket.
class ServedJob {
 public:
  explicit ServedJob(TestServerOptions options = {});
  ~ServedJob();

  // As TestServer does; the addresses stay the same.
  void Start();
  void Kill();
  absl::Status WaitAndClose();
  // Leaves every call from now on without an answer, until Kill.
  void StopAnswering();

  // The addresses of all tasks, as PushpullCloneOptions has them.
  const std::string& ps() const { return ps_; }
  TestServer& server() { return server_; }
  const VariableLayout& layout() const { return server_.job().layout; }

 private:
  TestFolder folder_;
  TestServer server_;
  std::vector<std::unique_ptr<RelayHandler>> relays_;
  std::vector<std::unique_ptr<GrpcPsServer>> listeners_;
  std::string ps_;
};

struct CloneDeleter {
  void operator()(PushpullClone* clone) const { pushpull_clone_free(clone); }
};
using ClonePtr = std::unique_ptr<PushpullClone, CloneDeleter>;

// Options of clone 0 of 1 with a given session. They point to the address, which has to outlive
// them.
PushpullCloneOptions OptionsFor(const char* ps);

// Variables as the C interface takes them, with initial values 0. The layout must outlive them.
struct ProgramVariables {
  explicit ProgramVariables(const VariableLayout& layout);
  std::vector<PushpullVariable> variables;
  std::vector<std::vector<float>> values;
  std::vector<const float*> value_pointers;
};

// Connects and starts; the result is the code of the call that failed, or 0.
int ConnectAndStart(PushpullClone* clone, const VariableLayout& layout);

// How a program computes: fills in the gradient of a batch, and ends it by finish or give_up.
using ComputeFn = std::function<void(PushpullClone* clone, const PushpullBatch& batch)>;

// Computes what a ToyGradientSource computes, and says after each variable what is final.
ComputeFn ToyProgram(const VariableLayout& layout, uint32_t num_replicas);

// Computes batches until training is over, and stores what pushpull_clone_next then returned.
// Returns the code with which it has failed, or 0.
int TrainToTheEnd(PushpullClone* clone, const ComputeFn& compute, PushpullBatch* last = nullptr);

// Trains a whole job with `n` programs, and returns the state of its last checkpoint as
// TrainedState does.
std::vector<float> TrainedByPrograms(uint32_t n, TestServerOptions server_options = {},
                                     const std::function<void(PushpullCloneOptions*)>& change = {});

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_WORKER_CLIENT_GRPC_CLIENT_TESTING_H_

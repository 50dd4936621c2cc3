// The comparison of ps_round: a minimal parameter server over ZeroMQ, the transport of ps-lite,
// with ps-lite's structure: a router in the server, a dealer per clone process, one message per
// push and per pull that is sent without copying, and one thread that sums and updates. It has no
// checksums, leases, staging or checkpoints. Prints the median milliseconds of a round.
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "glog/logging.h"

ABSL_FLAG(std::string, endpoint, "tcp://127.0.0.1:*",
          "address of the server: tcp://ADDRESS:* or ipc://*");
ABSL_FLAG(int, clones, 1, "clone processes");
ABSL_FLAG(int64_t, elements, 3538984, "floats of the gradient and of the weights");
ABSL_FLAG(int, rounds, 60, "timed rounds");
ABSL_FLAG(int, warmup_rounds, 10, "untimed rounds before the timed ones");

namespace pushpull {
namespace {

constexpr ssize_t kEndpointBytes = 256;

double NowMilliseconds() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A received part of a multipart message. Owns its bytes.
class Part {
 public:
  Part() { zmq_msg_init(&message_); }
  ~Part() { zmq_msg_close(&message_); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  void Receive(void* socket) {
    CHECK_GE(zmq_msg_recv(&message_, socket, 0), 0) << zmq_strerror(errno);
  }
  const float* floats() { return static_cast<const float*>(zmq_msg_data(&message_)); }
  size_t size_bytes() const { return zmq_msg_size(&message_); }
  std::string text() {
    return std::string(static_cast<const char*>(zmq_msg_data(&message_)), size_bytes());
  }

 private:
  zmq_msg_t message_;
};

void SendText(void* socket, const std::string& text, int flags) {
  CHECK_EQ(zmq_send(socket, text.data(), text.size(), flags), static_cast<int>(text.size()));
}

// Sends without copying. The memory must not change until the peer has all of it, which ends the
// round.
void SendInPlace(void* socket, std::vector<float>* values) {
  zmq_msg_t message;
  const size_t size_bytes = values->size() * sizeof(float);
  zmq_msg_init_data(
      &message, values->data(), size_bytes, [](void*, void*) {}, nullptr);
  CHECK_EQ(zmq_msg_send(&message, socket, 0), static_cast<int>(size_bytes)) << zmq_strerror(errno);
}

[[noreturn]] void RunClone(const std::string& endpoint, int64_t elements, int rounds) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  void* const context = zmq_ctx_new();
  void* const socket = zmq_socket(context, ZMQ_DEALER);
  CHECK_EQ(zmq_connect(socket, endpoint.c_str()), 0) << zmq_strerror(errno);
  std::vector<float> gradient(elements, 1e-3f), weights(elements);
  for (int i = 0; i < rounds; ++i) {
    SendText(socket, "push", ZMQ_SNDMORE);
    SendInPlace(socket, &gradient);
    Part done;
    done.Receive(socket);
    SendText(socket, "pull", 0);
    Part pulled;
    pulled.Receive(socket);
    CHECK_EQ(pulled.size_bytes(), weights.size() * sizeof(float));
    std::memcpy(weights.data(), pulled.floats(), pulled.size_bytes());
  }
  zmq_close(socket);
  zmq_ctx_term(context);
  _exit(0);
}

// Sums the gradients of a round, then makes one momentum step.
class Variables {
 public:
  explicit Variables(int64_t elements)
      : weights_(elements, 1.0f), momentum_(elements), sum_(elements) {}

  void Add(const float* gradient) {
    if (contributions_ == 0) {
      std::memcpy(sum_.data(), gradient, sum_.size() * sizeof(float));
    } else {
      for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += gradient[i];
    }
    ++contributions_;
  }

  void Apply() {
    const float scale = 1.0f / static_cast<float>(contributions_);
    for (size_t i = 0; i < weights_.size(); ++i) {
      momentum_[i] = 0.9f * momentum_[i] + scale * sum_[i];
      weights_[i] -= 1e-3f * momentum_[i];
    }
    contributions_ = 0;
  }

  int contributions() const { return contributions_; }
  std::vector<float>* weights() { return &weights_; }

 private:
  std::vector<float> weights_, momentum_, sum_;
  int contributions_ = 0;
};

// Serves all rounds. Returns the times at which their updates were done. A push is acknowledged
// once the step is applied, so that the next pull gets the new weights.
std::vector<double> Serve(void* socket, int clones, int rounds, Variables* variables) {
  std::vector<double> updated;
  std::vector<std::string> pushed;
  for (int pulls = 0; pulls < clones * rounds;) {
    Part identity, what;
    identity.Receive(socket);
    what.Receive(socket);
    if (what.text() == "pull") {
      SendText(socket, identity.text(), ZMQ_SNDMORE);
      SendInPlace(socket, variables->weights());
      ++pulls;
      continue;
    }
    Part gradient;
    gradient.Receive(socket);
    CHECK_EQ(gradient.size_bytes(), variables->weights()->size() * sizeof(float));
    variables->Add(gradient.floats());
    pushed.push_back(identity.text());
    if (variables->contributions() < clones) continue;
    variables->Apply();
    updated.push_back(NowMilliseconds());
    for (const std::string& clone : pushed) {
      SendText(socket, clone, ZMQ_SNDMORE);
      SendText(socket, "done", 0);
    }
    pushed.clear();
  }
  return updated;
}

double MedianRound(const std::vector<double>& updated, int warmup_rounds) {
  std::vector<double> times;
  for (size_t i = warmup_rounds + 1; i < updated.size(); ++i) {
    times.push_back(updated[i] - updated[i - 1]);
  }
  CHECK(!times.empty());
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void Main() {
  const int clones = absl::GetFlag(FLAGS_clones);
  const int64_t elements = absl::GetFlag(FLAGS_elements);
  const int warmup = absl::GetFlag(FLAGS_warmup_rounds);
  const int rounds = warmup + absl::GetFlag(FLAGS_rounds);
  // The children are forked before this process starts ZeroMQ's threads. A pipe tells them where to
  // connect.
  int address[2];
  CHECK_EQ(pipe(address), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < clones; ++i) {
    const pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
      char endpoint[kEndpointBytes];
      CHECK_EQ(read(address[0], endpoint, sizeof(endpoint)), kEndpointBytes);
      RunClone(endpoint, elements, rounds);
    }
    children.push_back(pid);
  }
  void* const context = zmq_ctx_new();
  void* const socket = zmq_socket(context, ZMQ_ROUTER);
  CHECK_EQ(zmq_bind(socket, absl::GetFlag(FLAGS_endpoint).c_str()), 0)
      << absl::GetFlag(FLAGS_endpoint) << ": " << zmq_strerror(errno);
  char endpoint[kEndpointBytes] = {};
  size_t length = sizeof(endpoint);
  CHECK_EQ(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &length), 0);
  for (int i = 0; i < clones; ++i) {
    CHECK_EQ(write(address[1], endpoint, sizeof(endpoint)), kEndpointBytes);
  }
  Variables variables(elements);  // sent without copying until the context has ended
  const std::vector<double> updated = Serve(socket, clones, rounds, &variables);
  zmq_close(socket);
  zmq_ctx_term(context);
  for (const pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0) << "a clone of the ZeroMQ server failed";
  }
  std::printf("%.3f\n", MedianRound(updated, warmup));
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  absl::SetProgramUsageMessage("zeromq_round: rounds of a hand-written server over ZeroMQ");
  absl::ParseCommandLine(argc, argv);
  pushpull::Main();
  return 0;
}

// A whole training job in one process: a ServerCore on a temporary folder, clones as threads, and
// in-process clients between them, so that crashes and lost messages come exactly where a test
// wants them.
#ifndef PUSHPULL_TESTS_TESTKIT_JOB_TEST_JOB_H_
#define PUSHPULL_TESTS_TESTKIT_JOB_TEST_JOB_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ps_server/runtime/server_core.h"
#include "tests/testkit/in_process_ps_client.h"
#include "tests/testkit/job/contribution_audit.h"
#include "tests/testkit/job/relay_handler.h"
#include "tests/testkit/job/toy_gradient_source.h"
#include "worker/train/clone_trainer.h"

namespace pushpull {

// Made on construction, removed with everything in it on destruction.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TestServerOptions {
  // Protobuf text, merged over the defaults: momentum, 20 steps, batch 31.
  std::string train_config = "";
  bool toy_layout = true;      // false: the layout of the pipeline config, a narrow MobileNetV2
  int64_t large_elements = 0;  // of one more variable of the toy layout
  bool sync = true;
  int tasks = 1;
  uint32_t num_replicas = 0;
  bool mapped = false;
  bool from_checkpoint = false;  // as in ServerCoreOptions, with from_step
  std::optional<uint64_t> from_step = std::nullopt;
  absl::Duration lease = absl::Seconds(10);
  TraceWriter* trace = nullptr;  // must outlive the server
};

config::TrainEvalPipelineConfig MakeTinyConfig(const std::string& train_config);

class TestClone;

// Every contribution of every TestClone is audited: the destructor fails the test if one was not
// computed from the weights that its push key names.
//
// No wait takes longer than a minute, and the first that does gives the whole job up: all clones
// are stopped and later waits return at once, so a test that has failed ends soon.
class TestServer {
 public:
  // folder: train_dir and state_dir are made in it.
  TestServer(const TestFolder& folder, TestServerOptions options);
  ~TestServer();

  // Opens and serves, whatever was there before.
  absl::Status Start();
  // As SIGKILL: calls under way fail with UNAVAILABLE.
  void Kill();
  // The end of the job, as the main awaits it; a test fails after a minute without.
  absl::Status WaitForEnd();
  // WaitForEnd, then what the main does to end well.
  absl::Status WaitAndClose();
  // As SIGTERM.
  absl::Status DrainAndClose();
  // Blocks until the status fulfils the condition; false after a minute. From any thread.
  bool Await(const std::function<bool(const ps::StatusReply&)>& condition);
  // Stops all clones, those that come later too, and ends all waits. From any thread.
  void GiveUp();
  bool has_given_up() const { return given_up_.load(); }

  std::unique_ptr<PsClient> MakeClient(int task, FaultHook hook = nullptr);
  // Makes clients of all tasks, whose addresses are "task 0", "task 1", ...
  PsSession::ClientFactory factory(FaultHook hook = nullptr);

  ServerCore& core() { return *core_; }
  const JobSpec& job() const { return *job_; }
  std::string train_dir() const { return folder_ + "/train"; }
  PosixFileSystem& files() { return files_; }
  SteadyClock& clock() { return clock_; }

  ContributionAudit& audit() const { return *audit_; }

  // Weights, slots and moving averages of a published checkpoint, one after the other; empty if it
  // does not verify.
  std::vector<float> Checkpointed(uint64_t step);

 private:
  friend class TestClone;
  void Attach(TestClone* clone);
  void Detach(TestClone* clone);
  // As the coordinator says, or nothing while there is no server. From any thread.
  ps::StatusReply Status();
  void DestroyCore();

  const std::string folder_;
  const TestServerOptions options_;
  PosixFileSystem files_;
  SteadyClock clock_;
  std::unique_ptr<JobSpec> job_;
  std::unique_ptr<ContributionAudit> audit_;
  std::vector<std::unique_ptr<RelayHandler>> relays_;
  absl::Mutex core_mutex_;  // held while core_ changes, shared by Status
  std::unique_ptr<ServerCore> core_;

  std::atomic<bool> given_up_{false};
  absl::Mutex clones_mutex_;
  std::set<TestClone*> clones_ ABSL_GUARDED_BY(clones_mutex_);
};

struct TestCloneOptions {
  uint32_t worker_id = 0;
  uint32_t num_replicas = 1;
  std::string peer_name = "test";
  uint64_t session = 1;  // a clone that follows another under its name and session replaces it
  FaultHook hook = nullptr;
  absl::Duration peer_deadline = absl::Seconds(60);
  absl::Duration rpc_timeout = absl::Seconds(20);
  const VariableLayout* layout = nullptr;  // null: the server's
  ToyGradientSource::Hook gradient_hook = nullptr;
  ps::GradientEncoding gradient_encoding = ps::FLOAT32;
  CloneInstruments instruments = {};
  ClockOffset* server_clock = nullptr;
  Clock* clock = nullptr;  // null: the server's
};

// One clone on a thread of its own.
class TestClone {
 public:
  TestClone(TestServer* server, TestCloneOptions options);
  ~TestClone();  // as Stop

  // Waits for the end of CloneTrainer::Run. After two minutes the test fails and the whole job is
  // given up.
  absl::Status Join();
  void Stop();
  std::vector<CloneReport> reports();

 private:
  absl::Status Run();
  absl::Status Train(PsSession* session, Clock* clock);

  TestServer* const server_;
  const TestCloneOptions options_;
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  PsSession* session_ ABSL_GUARDED_BY(mutex_) = nullptr;
  CloneTrainer* trainer_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<CloneReport> reports_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_;
  std::thread thread_;
};

// Stops a trainer that still runs a minute from now, so that a test of what ends it fails instead
// of hanging.
class TrainerDeadline {
 public:
  explicit TrainerDeadline(CloneTrainer* trainer);
  ~TrainerDeadline();

 private:
  absl::Mutex mutex_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Starts clones 0 .. n-1, alike but for their ids, and waits for all.
std::vector<absl::Status> TrainWithClones(TestServer* server, uint32_t n,
                                          const TestCloneOptions& common = {});

// Checkpointed(num_steps) after a whole run in a folder of its own, which has to end well for the
// server and every clone; empty, with a failure of the test, if it does not.
std::vector<float> TrainedState(uint32_t clones, TestServerOptions server_options = {},
                                const TestCloneOptions& clone_options = {});

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_JOB_TEST_JOB_H_

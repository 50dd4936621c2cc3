// A whole training job in one process: a ServerCore on a temporary folder, clones as threads, and
// in-process clients between them, so that tests can crash servers and lose messages at exact
// points.
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

#include "common/wire/gradient_codec.h"
#include "ps_server/runtime/server_core.h"
#include "tests/testkit/in_process_ps_client.h"
#include "tests/testkit/job/contribution_audit.h"
#include "tests/testkit/job/relay_handler.h"
#include "tests/testkit/job/toy_gradient_source.h"
#include "tests/testkit/test_folder.h"
#include "worker/client/clone_trainer.h"

namespace pushpull {

struct TestServerOptions {
  // Protobuf text, merged over the defaults: momentum, 20 steps, batch 31.
  std::string train_config = "";
  std::string pipeline_config = "";  // the same for the whole pipeline config
  uint32_t num_epochs = 0;           // train_input_reader.num_epochs
  bool toy_layout = true;      // false: the layout of the pipeline config, a narrow MobileNetV2
  int64_t large_elements = 0;  // if positive, size of an additional variable of the toy layout
  const VariableLayout* layout = nullptr;  // replaces the toy layout; must outlive the server
  bool sync = true;
  int tasks = 1;
  uint32_t num_replicas = 0;
  bool mapped = false;
  bool from_checkpoint = false;  // as in SharedServerOptions, with from_step
  std::optional<uint64_t> from_step = std::nullopt;
  absl::Duration lease = absl::Seconds(10);
  TraceWriter* trace = nullptr;  // must outlive the server
  FileSystem* files = nullptr;   // of the server; null: the machine's; must outlive the server
};

// Both arguments are as in TestServerOptions.
config::TrainEvalPipelineConfig MakeTinyConfig(const std::string& train_config,
                                               const std::string& pipeline_config = "");

class TestClone;

// Audits every contribution of every TestClone: the destructor fails the test if a contribution was
// not computed from the weights that its push key names.
//
// No wait takes longer than a minute. The first wait that does gives up the whole job: it stops all
// clones, and later waits return at once, so that a failed test ends soon.
class TestServer {
 public:
  // Creates train_dir and state_dir in `folder`.
  TestServer(const TestFolder& folder, TestServerOptions options);
  ~TestServer();

  // Opens whatever the folder holds, and serves.
  absl::Status Start();
  // Ends like SIGKILL: running calls fail with UNAVAILABLE.
  void Kill();
  // Waits for the end of the job as the main does. Fails the test after a minute.
  absl::Status WaitForEnd();
  // Calls WaitForEnd, then does what the main does at a normal end.
  absl::Status WaitAndClose();
  // Ends like SIGTERM.
  absl::Status DrainAndClose();
  // Blocks until the status fulfils the condition. Returns false after a minute. Thread-safe.
  bool Await(const std::function<bool(const ps::StatusReply&)>& condition);
  // Stops all present and future clones, and ends all waits. Thread-safe.
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

  // Returns weights, slots and moving averages of a published checkpoint, one after another. Empty
  // if the checkpoint does not verify.
  std::vector<float> Checkpointed(uint64_t step);

 private:
  friend class TestClone;
  void Attach(TestClone* clone);
  void Detach(TestClone* clone);
  // Returns the coordinator's status, or an empty one while there is no server. Thread-safe.
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
  uint64_t session = 1;  // a new clone with the same peer_name and session replaces the old one
  FaultHook hook = nullptr;
  absl::Duration peer_deadline = absl::Seconds(60);
  absl::Duration rpc_timeout = absl::Seconds(20);
  const VariableLayout* layout = nullptr;  // null: the server's layout
  ToyGradientSource::Hook gradient_hook = nullptr;
  uint64_t num_images = ToyGradientSource::kNumImages;
  const GradientCodec* gradient_codec = &Float32Codec();
  const GradientCodec* weight_codec = &Float32Codec();
  CloneInstruments instruments = {};
  ClockOffset* server_clock = nullptr;
  Clock* clock = nullptr;  // null: the server's clock
};

// A clone that runs in a separate thread.
class TestClone {
 public:
  TestClone(TestServer* server, TestCloneOptions options);
  ~TestClone();  // stops the clone

  // Waits for the end of CloneTrainer::Run. After two minutes it fails the test and gives up the
  // whole job.
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

// Stops a trainer that is still running in a minute, so that a test of how it ends fails instead of
// hanging.
class TrainerDeadline {
 public:
  explicit TrainerDeadline(CloneTrainer* trainer);
  ~TrainerDeadline();

 private:
  absl::Mutex mutex_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Starts clones 0 .. n-1, which differ only in their ids, and waits for all of them.
std::vector<absl::Status> TrainWithClones(TestServer* server, uint32_t n,
                                          const TestCloneOptions& common = {});

// Trains with two clones and drains the server, as SIGTERM does, while step `step` is open: one
// clone is held inside it until the server has been told. The job ends with version step - 1 or
// `step`. Returns its end.
absl::Status TrainAndDrainInStep(TestServer* server, uint64_t step);

// Trains a whole run in a new folder and returns Checkpointed(num_steps). The server and every
// clone have to end well; otherwise the test fails and the result is empty.
std::vector<float> TrainedState(uint32_t clones, TestServerOptions server_options = {},
                                const TestCloneOptions& clone_options = {});

// The same with two clones, of which one leaves for good while it computes at data position
// `position` (StepGate), so that the other one takes its replica over.
std::vector<float> StateAfterTakeover(TestServerOptions server_options, uint64_t position);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_JOB_TEST_JOB_H_

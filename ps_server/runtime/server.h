// Server is one ps_server process from start to clean end: a ServerCore behind gRPC listeners.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_SERVER_H_
#define PUSHPULL_PS_SERVER_RUNTIME_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/base/file_system.h"
#include "common/trace/clock_offset.h"
#include "common/wire/security/transport_credentials.h"
#include "common/wire/transport_security.h"
#include "ps_server/monitoring/counting_handler.h"
#include "ps_server/monitoring/monitor.h"
#include "ps_server/runtime/clock_follower.h"
#include "ps_server/runtime/declaration_phase.h"
#include "ps_server/runtime/not_ready_handler.h"
#include "ps_server/runtime/server_core.h"
#include "ps_server/runtime/switch_handler.h"
#include "ps_server/transport/grpc_ps_server.h"

namespace pushpull {

struct ServerOptions : SharedServerOptions {
  config::TrainEvalPipelineConfig config;
  bool sync = true;
  int tasks = 1;
  int task_index = -1;               // -1: all tasks in this process
  std::vector<std::string> cluster;  // addresses of all tasks; only with task_index >= 0
  std::string listen;                // address of the first task served here
  ServerLimits limits = {};
  TransportSecurity security = {};  // for clients and for the other tasks
  // File with the secret that the ps tasks share. Only used when they run in several processes
  // without TLS. Empty: peer_secret in train_dir, which task 0 creates.
  std::string peer_secret_file = {};
  // Called at the end of each recovery: of the whole job in the process of task 0, of the
  // task's shard in any other process. Called from any thread; must not block.
  std::function<void()> on_serving = [] {};
  // Learns the clock of task 0 if task 0 is in another process. May be null; must outlive the
  // server.
  ClockOffset* trace_clock = nullptr;
};

// Call order: Create, WaitForEnd any number of times, Stop; all from one thread.
class Server {
 public:
  // Listens, opens all files, and starts recovery in the background. Calls that come before the
  // files are open get NOT_READY. `files` and `clock` must outlive the server. Fails for a bad
  // config, a second server on train_dir, a port in use or a task of another job. If task 0 is in
  // another process, Create blocks until task 0 answers, and without TLS for up to 10 s more until
  // peer_secret is in train_dir. DEADLINE_EXCEEDED: task 0 has not answered for five minutes.
  // FAILED_PRECONDITION: the secret of the ps tasks cannot be read.
  //
  // If the model is external and train_dir has no checkpoint, Create listens and then blocks, for
  // as long as it takes, until a clone has declared the variables. CANCELLED: an administrator
  // called Drain meanwhile.
  static absl::StatusOr<std::unique_ptr<Server>> Create(ServerOptions options, FileSystem* files,
                                                        Clock* clock);
  ~Server();

  // Addresses at which the tasks of this process listen.
  std::vector<std::string> addresses() const;
  // Blocks until the job has ended, for at most `patience`. Returns nullopt if it has not
  // ended. OK: training is done and the last checkpoint is published. CANCELLED: drained. Any
  // other status is the failure that stopped training.
  std::optional<absl::Status> WaitForEnd(absl::Duration patience);
  // Starts a clean end, as SIGTERM asks: finishes or gives up the open step (Steps::IsGivenUpBy)
  // and publishes a checkpoint. Does not block; WaitForEnd returns the end.
  void Drain();
  // Returns whether an administrator has called Drain (psctl drain): the process has to end, as
  // after SIGTERM.
  bool end_wanted() const { return core_->end_wanted(); }
  // Waits until the clones and the other ps tasks know of the end (at most a lease), then
  // closes everything. Removes the mapped state if a verified checkpoint is at least as new.
  // `end` is what WaitForEnd returned.
  void Stop(const absl::Status& end);

  // Returns for whom this task waits, such as "ps task 0 at 10.0.0.1:2222", or an empty string. It
  // is always empty in the process of task 0, where Status says what the job waits for.
  // Thread-safe.
  std::string WaitingFor() const;

  // Empty in processes without task 0. Thread-safe.
  ps::StatusReply Status() const { return core_->Status(); }
  TrainingFigures Figures() const { return core_->Figures(); }
  const JobSpec& job() const { return core_->job(); }
  // For the monitoring of this server. version: of the build. The server must outlive the
  // returned sources.
  MonitoringIdentity MakeMonitoringIdentity(std::string version) const;
  MonitoringSources MakeMonitoringSources() const;

 private:
  Server(ServerOptions options, FileSystem* files, Clock* clock);

  int FirstTask() const { return options_.task_index < 0 ? 0 : options_.task_index; }
  int NumTasksHere() const { return options_.task_index < 0 ? options_.tasks : 1; }
  absl::Status Open();
  // Returns whether orders between the coordinator and shards cross the network in plaintext.
  bool NeedsPeerSecret() const;
  // Reads the secret, or makes one if this is task 0 and train_dir has none.
  absl::Status LoadPeerSecret();
  // Writes the secret that LoadPeerSecret has made. Comes after everything that can fail, so that a
  // start that fails leaves no file.
  absl::Status SavePeerSecret();
  // Returns the job of the process of task 0. Waits for the variables of an external model if
  // train_dir has no checkpoint; the process then listens already.
  absl::StatusOr<JobSpec> FindJob();
  absl::StatusOr<VariableLayout> AwaitDeclaration();
  // For a process without task 0: asks task 0 for the job and the id of the run, and blocks until
  // it answers and knows the variables. If task 0 stays silent and train_dir shows that the run is
  // finished, the id comes from the last checkpoint and end_of_run_ is set.
  absl::StatusOr<JobSpec> FindJobOfCoordinator(std::string* run_id);
  // Returns the job of an external model with the variables that train_dir's newest checkpoint has.
  // nullopt: there is none that can be read.
  std::optional<JobSpec> JobOfCheckpoints() const;
  // Returns the job that task 0 has told of. job: what this process knows of it; unused for an
  // external model. FAILED_PRECONDITION: task 0 has another job, or other settings for it.
  absl::StatusOr<JobSpec> JobOf(const ps::JobReply& told, std::optional<JobSpec> job) const;
  // FAILED_PRECONDITION: task 0 has told of another job than `job`, or of other settings for it.
  absl::Status CheckJob(const ps::JobReply& told, const JobSpec& job) const;
  // For a process without task 0: asks task 0, which restores the shard, whether it still has the
  // same job. If not, it was started again with other settings, and this process ends so that it
  // can be too. UNAVAILABLE: it has another job, or does not answer, or CheckSharedTrainDir.
  absl::Status CheckRestore(PsClient* coordinator) const;
  // For a process without task 0: asks task 0 to drain the job of this run. at_own_address: a
  // client of this task's address. WRONG_RUN: task 0 serves another run, which goes on. FENCED:
  // another process of this run answers at the address, so it has the task, and the job goes on.
  // Blocks for seconds if nobody answers.
  absl::Status DrainRun(PsClient* coordinator, PsClient* at_own_address,
                        const std::string& run_id) const;
  bool IsExternal() const { return options_.config.model().has_external(); }
  absl::Status Listen();
  void StartCoordinator();
  // Makes the health services of all tasks here report that they serve, and tells the owner. Called
  // from any thread, once servers_ is complete.
  void NoteServing() const;
  std::unique_ptr<PsClient> ClientOf(const std::string& address) const;

  const ServerOptions options_;
  FileSystem* const files_;
  Clock* const clock_;
  TransportOptions transport_;
  std::unique_ptr<ClockFollower> clock_follower_;
  // Answers until core_ does. A large checkpoint takes seconds.
  NotReadyHandler starting_{"the ps task is starting: it opens its checkpoint and state files"};
  std::unique_ptr<DeclarationPhase> declaration_;  // may be null
  std::unique_ptr<ServerCore> core_;
  std::optional<EndOfRun> end_of_run_;  // set by FindJobOfCoordinator
  bool secret_is_new_ = false;          // set by LoadPeerSecret
  // These have one element per task served here.
  std::vector<std::unique_ptr<SwitchHandler>> switches_;
  std::vector<std::shared_ptr<RequestCounters>> counters_;
  std::vector<std::unique_ptr<CountingHandler>> handlers_;
  std::vector<std::unique_ptr<GrpcPsServer>> servers_;
};

// Returns the address of task `index` if the first task listens on `first`: the port plus
// `index`, or the path of a unix socket with ".index" appended. Port 0 stays 0.
// INVALID_ARGUMENT: `first` is not an address, or the port would exceed 65535.
absl::StatusOr<std::string> TaskAddress(const std::string& first, int index);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_SERVER_H_

// One ps_server process from start to clean end: a ServerCore behind gRPC listeners.
#ifndef PUSHPULL_PS_SERVER_SERVICE_SERVER_H_
#define PUSHPULL_PS_SERVER_SERVICE_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/file_system.h"
#include "common/rpc/grpc_ps_server.h"
#include "common/rpc/security/transport_credentials.h"
#include "common/trace/clock_offset.h"
#include "common/trace/trace_writer.h"
#include "common/transport_security.h"
#include "ps_server/service/clock_follower.h"
#include "ps_server/service/server_core.h"
#include "ps_server/watch/counting_handler.h"
#include "ps_server/watch/watcher.h"

namespace pushpull {

struct ServerOptions {
  config::TrainEvalPipelineConfig config;
  std::string train_dir;
  bool sync = true;
  int tasks = 1;
  int task_index = -1;               // -1: all tasks in this process
  std::vector<std::string> cluster;  // task_index >= 0: addresses of all tasks
  std::string listen;                // of the first task served here
  uint32_t num_replicas = 0;         // 0: what the first worker announces
  std::string state_dir;             // empty: anonymous memory
  // The same as in ServerCoreOptions.
  bool from_checkpoint = false;
  std::optional<uint64_t> from_step = std::nullopt;
  int apply_threads = 1;
  absl::Duration lease = absl::Seconds(10);
  ServerLimits limits = {};
  TransportSecurity security = {};  // towards clients and the other tasks alike
  // Of ps tasks in several processes without TLS: the file with the secret that they share; empty:
  // peer_secret in train_dir, which task 0 makes.
  std::string peer_secret_file = {};
  // Asked while Create waits for task 0 of another process; true: it gives up with CANCELLED.
  std::function<bool()> stop_requested = [] { return false; };
  // Called once or more when what is served here has been recovered: the whole job in task 0's
  // process, else the task's own shard. From any thread; must not block.
  std::function<void()> on_serving = [] {};
  // Null: no trace. Both must outlive the server; trace_clock learns the clock of task 0 where that
  // is another process.
  TraceWriter* trace = nullptr;
  ClockOffset* trace_clock = nullptr;
  // gRPC's reflection and channelz; nothing: on addresses that only this machine reaches.
  std::optional<bool> debug_services = std::nullopt;
};

// Create, then WaitForEnd any number of times, then Stop; all by one thread.
class Server {
 public:
  // Opens everything, recovers in the background, and listens. Errors as in common/status (bad
  // config, a second server on the directory, a port in use, a task of another job).
  static absl::StatusOr<std::unique_ptr<Server>> Create(ServerOptions options, FileSystem* files,
                                                        Clock* clock);
  ~Server();

  // Addresses of the tasks served here.
  std::vector<std::string> addresses() const;
  // Nothing while training goes on; OK: done and the last checkpoint published; CANCELLED: drained;
  // else the failure that stopped it. Blocks at most so long.
  std::optional<absl::Status> WaitForEnd(absl::Duration patience);
  // SIGTERM: finish the step and publish a checkpoint; WaitForEnd tells when.
  void Drain();
  // An operator has called Drain (psctl): the process is to end as by SIGTERM.
  bool end_wanted() const { return core_->end_wanted(); }
  // Gives clones the time to hear of the end, then closes. Removes the mapped state when a
  // checkpoint has it.
  void Stop(const absl::Status& end);

  // Of task 0's process; empty elsewhere.
  ps::StatusReply Status() const { return core_->Status(); }
  TrainingFigures Figures() const { return core_->Figures(); }
  const JobSpec& job() const { return core_->job(); }
  // For whoever watches the server; version: of the build. They must end before the server does.
  WatchIdentity MakeWatchIdentity(std::string version) const;
  WatchSources MakeWatchSources() const;

 private:
  Server(ServerOptions options, FileSystem* files, Clock* clock);

  int FirstTask() const { return options_.task_index < 0 ? 0 : options_.task_index; }
  int NumTasksHere() const { return options_.task_index < 0 ? options_.tasks : 1; }
  absl::Status Open();
  // Whether orders of the coordinator come or go over the network in plaintext.
  bool NeedsPeerSecret() const;
  absl::Status LoadPeerSecret();
  // Asks task 0, in another process, for the id of the run, and waits for its answer. Where the run
  // turns out to be finished while task 0 is silent, the id comes from the last checkpoint.
  absl::StatusOr<std::string> FindRunOfCoordinator(const JobSpec& job);
  absl::Status Listen();
  void StartCoordinator();
  std::unique_ptr<PsClient> ClientOf(const std::string& address) const;

  const ServerOptions options_;
  FileSystem* const files_;
  Clock* const clock_;
  TransportOptions transport_;
  std::unique_ptr<ClockFollower> clock_follower_;
  std::unique_ptr<ServerCore> core_;
  bool run_is_finished_ = false;  // found by FindRunOfCoordinator
  // Per task served here.
  std::vector<std::shared_ptr<RequestCounters>> counters_;
  std::vector<std::unique_ptr<CountingHandler>> handlers_;
  std::vector<std::unique_ptr<GrpcPsServer>> servers_;
};

// Address of task `index` when the first task listens on `first`: the port raised by index, or
// ".index" appended to the path of a unix socket; port 0 stays 0. INVALID_ARGUMENT: not an address.
absl::StatusOr<std::string> TaskAddress(const std::string& first, int index);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_SERVER_H_

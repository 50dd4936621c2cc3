// --check_cluster: asks every ps task of a job whether it answers, is the task that it should be,
// and belongs to the same job; and says of each that does not, why.
//
// Changes nothing anywhere: only calls that read are made.
#ifndef PUSHPULL_COMMON_CLUSTER_CLUSTER_CHECK_H_
#define PUSHPULL_COMMON_CLUSTER_CLUSTER_CHECK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/ps_client.h"

namespace pushpull {

struct ClusterCheckOptions {
  std::vector<std::string> ps;   // of all tasks in order, or of task 0, which tells the others
  int own_task = -1;             // a ps task of this process: not asked
  std::string layout_signature;  // not empty: of the model that the job must have
  absl::Duration patience = absl::Seconds(5);  // with each peer
};

enum class PeerState {
  kOwn,          // this process's task
  kReady,        // answers, and is what it should be
  kStarting,     // answers, but has not its variables yet
  kUnreachable,  // no name, no connection, no answer in time
  kRefused,      // connected, but it is another service, or TLS or its access table say no
  kOtherJob,     // another run, model or number of tasks
  kWrongTask,    // another task of the job than the one expected at this address
  kOtherVersion  // speaks another version of the protocol
};

struct PeerReport {
  int task = 0;
  std::string address;
  PeerState state = PeerState::kUnreachable;
  std::string reason;             // of any state but kOwn and kReady
  absl::Duration round_trip;      // of a small call; zero: no answer
  std::string run_id;             // hex, empty: not told
  uint32_t protocol_version = 0;  // 0: not told
};

struct ClusterReport {
  std::vector<PeerReport> peers;  // in task order

  // A row per peer under a header, for stdout.
  std::string Table() const;
  // OK when all peers are ready (or own); else UNAVAILABLE, naming each that is not and why.
  absl::Status status() const;
};

using PsClientFactory = std::function<std::unique_ptr<PsClient>(const std::string& address)>;

// Asks all peers at once. Blocks for at most four times `patience`.
ClusterReport CheckCluster(const ClusterCheckOptions& options, const PsClientFactory& connect);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_CLUSTER_CHECK_H_

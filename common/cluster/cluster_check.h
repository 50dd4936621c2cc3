// Implements --check_cluster: checks that every ps task of a job answers, is the expected task and
// belongs to the same job, and reports for each task that fails why.
//
// Makes only read-only calls, so it changes nothing on any task.
#ifndef PUSHPULL_COMMON_CLUSTER_CLUSTER_CHECK_H_
#define PUSHPULL_COMMON_CLUSTER_CLUSTER_CHECK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/wire/ps_client.h"
#include "common/wire/transport_security.h"

namespace pushpull {

struct ClusterCheckOptions {
  std::vector<std::string> ps;  // all tasks in order, or only task 0, which is asked for the others
  int own_task = -1;            // the ps task of this process, which is not asked; -1: none
  // Returns how the job that task 0 tells of differs from what this process was given, as the rest
  // of a sentence about task 0; empty: it does not. Null: nothing is compared.
  std::function<std::string(const ps::JobReply& told)> job_difference = nullptr;
  absl::Duration patience = absl::Seconds(5);  // for each peer
  TransportSecurity security = {};             // of the clients that CheckCluster gets
};

enum class PeerState {
  kOwn,          // the task of this process
  kReady,        // answers, and is the expected task
  kStarting,     // answers, but does not have its variables yet
  kUnreachable,  // the name does not resolve, no connection, or no answer in time
  kRefused,      // it is another service, TLS or its access table refuses, or it was not asked
                 // because plaintext would leave this machine
  kOtherJob,     // belongs to another run, or has another model, other settings or another number
                 // of tasks
  kWrongTask,    // another task of the job than the one expected at this address
  kOtherVersion  // speaks another version of the protocol
};

struct PeerReport {
  int task = 0;
  std::string address;
  PeerState state = PeerState::kUnreachable;
  std::string reason;             // why it is not ready; empty for kOwn and kReady
  absl::Duration round_trip;      // of a small call; zero: unknown
  std::string run_id;             // the first 8 hex digits; empty: unknown
  uint32_t protocol_version = 0;  // 0: unknown
};

struct ClusterReport {
  std::vector<PeerReport> peers;  // in task order

  // Returns a table for stdout: a header and one row for each peer.
  std::string Table() const;
  // Returns OK if all peers are kReady or kOwn. UNAVAILABLE: the message names each peer that is
  // not, and why.
  absl::Status status() const;
};

using PsClientFactory = std::function<std::unique_ptr<PsClient>(const std::string& address)>;

// Asks all peers at the same time, on one thread each. Blocks for at most four times `patience`.
// Calls `connect` from several threads at once.
ClusterReport CheckCluster(const ClusterCheckOptions& options, const PsClientFactory& connect);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_CLUSTER_CHECK_H_

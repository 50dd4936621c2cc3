// GrantMac computes and checks the MACs of grants. Clones get grants from the coordinator and
// present them to the shards. By the MAC a shard knows that the coordinator gave this replica's
// grant to this clone. Without MACs any peer could fill the staging area of every replica and
// fence the clones that hold the grants.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_GRANT_MAC_H_
#define PUSHPULL_PS_SERVER_RUNTIME_GRANT_MAC_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

// Thread-safe.
class GrantMac {
 public:
  // While the key is empty, Check refuses every grant.
  explicit GrantMac(std::string key = "") : key_(std::move(key)) {}

  void SetKey(std::string key);
  std::string key() const;

  // Sets grant->mac to the MAC of worker id, replica and grant.
  void Sign(uint32_t worker_id, ps::ReplicaGrant* grant) const;
  // FENCED (PERMISSION_DENIED): the coordinator did not give this grant to this clone.
  absl::Status Check(uint32_t worker_id, uint32_t replica, uint64_t grant, uint64_t mac) const;
  absl::Status Check(uint32_t worker_id, const ps::ReplicaGrant& grant) const {
    return Check(worker_id, grant.replica(), grant.grant(), grant.mac());
  }
  absl::Status Check(const ps::PushKey& key) const {
    return Check(key.worker_id(), key.replica(), key.grant(), key.mac());
  }

 private:
  mutable absl::Mutex mutex_;
  std::string key_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_GRANT_MAC_H_

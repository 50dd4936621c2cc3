// GrantSeals computes and checks the MACs of grants. Workers get grants from the coordinator and
// present them to the shards. By the MAC a shard knows that the coordinator gave this replica's
// grant to this worker. Without MACs any peer could fill the staging area of every replica and
// fence the clones that hold the grants.
#ifndef PUSHPULL_PS_SERVER_SERVICE_GRANT_SEALS_H_
#define PUSHPULL_PS_SERVER_SERVICE_GRANT_SEALS_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

// Thread-safe.
class GrantSeals {
 public:
  // While the key is empty, Check refuses every grant.
  explicit GrantSeals(std::string key = "") : key_(std::move(key)) {}

  void SetKey(std::string key);
  std::string key() const;

  // Sets grant->seal to the MAC of worker id, slot and grant.
  void Seal(uint32_t worker_id, ps::SlotGrant* grant) const;
  // FENCED (PERMISSION_DENIED): the coordinator did not give this grant to this worker.
  absl::Status Check(uint32_t worker_id, uint32_t slot, uint64_t grant, uint64_t seal) const;
  absl::Status Check(uint32_t worker_id, const ps::SlotGrant& grant) const {
    return Check(worker_id, grant.slot(), grant.grant(), grant.seal());
  }
  absl::Status Check(const ps::PushKey& key) const {
    return Check(key.worker_id(), key.slot(), key.grant(), key.seal());
  }

 private:
  mutable absl::Mutex mutex_;
  std::string key_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_GRANT_SEALS_H_

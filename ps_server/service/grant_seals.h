// Seals on grants: a shard, which never meets the workers, sees by them that the coordinator gave a
// slot's grant to the worker that pushes under it. Without them anybody could fill the staging area
// of every slot and fence the clones that own them.
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
  // Without a key nothing passes.
  explicit GrantSeals(std::string key = "") : key_(std::move(key)) {}

  void SetKey(std::string key);
  std::string key() const;

  void Seal(uint32_t worker_id, ps::SlotGrant* grant) const;
  // FENCED (PERMISSION_DENIED): this worker was not given this grant.
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

// PullCopies makes copies of a shard's weights for peers without a grant. A pinned version
// delays the apply that overwrites its buffer, so a peer that never finishes its pull could
// delay training. Only peers with a grant therefore read the memory of the store itself.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_PULL_COPIES_H_
#define PUSHPULL_PS_SERVER_RUNTIME_PULL_COPIES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

#include "common/wire/ps_handler.h"

namespace pushpull {

// At most kMaxCopies copies exist at a time. Pulls of the same version share a copy. Thread-safe.
class PullCopies {
 public:
  static constexpr int kMaxCopies = 2;

  // Returns `snapshot` with its payload replaced by a copy, which lives as long as the
  // payload's owner. Blocks while a whole shard is copied. UNAVAILABLE: kMaxCopies copies of
  // other versions are still being read.
  absl::StatusOr<PullSnapshot> Copy(const PullSnapshot& snapshot);

 private:
  struct Copied {
    uint64_t epoch;
    uint64_t version;
    std::weak_ptr<const std::string> bytes;
  };

  absl::Mutex mutex_;
  std::vector<Copied> copies_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_PULL_COPIES_H_

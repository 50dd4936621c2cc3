// Copies of a shard's weights for peers that hold no grant. A version that somebody reads cannot be
// overwritten, so a peer that never ends its pull would hold training up; nobody but the owners of
// slots gets at the shard's own memory.
#ifndef PUSHPULL_PS_SERVER_SERVICE_PULL_COPIES_H_
#define PUSHPULL_PS_SERVER_SERVICE_PULL_COPIES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

#include "common/ps_handler.h"

namespace pushpull {

// Thread-safe. At most kMaxCopies live at a time; pulls of one version share one.
class PullCopies {
 public:
  static constexpr int kMaxCopies = 2;

  // The same snapshot in memory of its own. UNAVAILABLE: as many copies as may be are being read.
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

#endif  // PUSHPULL_PS_SERVER_SERVICE_PULL_COPIES_H_

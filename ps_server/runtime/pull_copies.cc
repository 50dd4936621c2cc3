// Tested by tests/ps_server/runtime/task_handler_test.cc.
#include "ps_server/runtime/pull_copies.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

absl::StatusOr<PullSnapshot> PullCopies::Copy(const PullSnapshot& snapshot) {
  std::shared_ptr<const std::string> bytes;
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(copies_, [](const Copied& copied) { return copied.bytes.expired(); });
    for (const Copied& copied : copies_) {
      if (copied.epoch == snapshot.epoch && copied.version == snapshot.version) {
        bytes = copied.bytes.lock();
      }
    }
    if (bytes == nullptr) {
      if (copies_.size() >= kMaxCopies) {
        return absl::UnavailableError(
            absl::StrCat("pulls without a grant read ", kMaxCopies,
                         " older versions already; try again, or register and pull with a grant"));
      }
      bytes =
          std::make_shared<const std::string>(snapshot.payload.data, snapshot.payload.size_bytes);
      copies_.push_back({snapshot.epoch, snapshot.version, bytes});
    }
  }
  PullSnapshot copy = snapshot;
  copy.payload.data = bytes->data();
  copy.payload.owner = std::move(bytes);
  return copy;
}

}  // namespace pushpull

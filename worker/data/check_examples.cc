#include "worker/data/check_examples.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

#include "common/base/passing_error.h"
#include "worker/data/image_problems.h"

namespace pushpull {

absl::Status CheckExamples(const ImageSource& source, absl::string_view name, ThreadPool* pool,
                           StoppedFn stopped,
                           absl::FunctionRef<absl::Status(int64_t, Example*)> get) {
  const int64_t size = source.size();
  std::vector<Example> scratch(pool->num_threads());
  absl::Mutex mutex;
  ImageProblems damaged, bad;
  // The failure that decides on the error is the first lasting one, for which a restart does not
  // help, or the first one if all are passing: that of the lowest (passing, index).
  std::pair<bool, int64_t> decisive_key(true, size);
  absl::Status decisive;
  std::atomic<bool> has_boxes{false};
  pool->ParallelFor(size, [&](int64_t i, int thread) {
    if (stopped()) return;
    const absl::Status status = get(i, &scratch[thread]);
    if (status.ok()) {
      if (!scratch[thread].boxes.empty()) has_boxes.store(true, std::memory_order_relaxed);
      if (const std::string& damage = scratch[thread].image.damage; !damage.empty()) {
        absl::MutexLock lock(&mutex);
        damaged.Add(i, damage);
      }
      return;
    }
    absl::MutexLock lock(&mutex);
    bad.Add(i, status.message());
    if (const std::pair key(IsPassing(status), i); key < decisive_key) {
      decisive_key = key;
      decisive = status;
    }
  });
  if (stopped()) return absl::CancelledError(absl::StrCat("stopped while reading ", name));
  damaged.LogDamage(name, size);
  if (decisive.ok()) {
    if (source.place_of_boxes().empty() || has_boxes) return absl::OkStatus();
    const std::string left_out = source.first_box_left_out();
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": no image has a box that can be used, so a detector would learn nothing; ",
        left_out.empty() ? absl::StrCat("expected ", source.place_of_boxes())
                         : absl::StrCat("the first box that is left out: ", left_out)));
  }
  return Annotated(decisive, bad.Describe(name, size, "cannot be read; repair or remove them"));
}

}  // namespace pushpull

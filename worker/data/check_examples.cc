#include "worker/data/check_examples.h"

#include <atomic>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

#include "common/base/passing_error.h"
#include "worker/data/damaged_images.h"

namespace pushpull {
namespace {

// Adds a failure, and keeps the `count` failures with the lowest indices.
void KeepFirst(size_t count, int64_t index, const absl::Status& status,
               std::map<int64_t, absl::Status>* failures) {
  failures->emplace(index, status);
  if (failures->size() > count) failures->erase(std::prev(failures->end()));
}

}  // namespace

absl::Status CheckExamples(const ImageSource& source, absl::string_view name, ThreadPool* pool,
                           StoppedFn stopped,
                           absl::FunctionRef<absl::Status(int64_t, Example*)> get) {
  constexpr size_t kMaxNamed = 10;
  const int64_t size = source.size();
  std::vector<Example> scratch(pool->num_threads());
  absl::Mutex mutex;
  int64_t num_bad = 0;
  // Sorted by index, so that the message does not depend on the order of the threads.
  std::map<int64_t, absl::Status> first_bad;
  std::map<int64_t, absl::Status> first_lasting;  // at most one: a restart does not help
  DamagedImages damaged;
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
    ++num_bad;
    KeepFirst(kMaxNamed, i, status, &first_bad);
    if (!IsPassing(status)) KeepFirst(1, i, status, &first_lasting);
  });
  if (stopped()) return absl::CancelledError(absl::StrCat("stopped while reading ", name));
  damaged.Log(name, size);
  if (num_bad == 0) {
    if (source.place_of_boxes().empty() || has_boxes) return absl::OkStatus();
    const std::string left_out = source.first_box_left_out();
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": no image has a box that can be used, so a detector would learn nothing; ",
        left_out.empty() ? absl::StrCat("expected ", source.place_of_boxes())
                         : absl::StrCat("the first box that is left out: ", left_out)));
  }
  std::string message = absl::StrCat(name, ": ", num_bad, " of ", size,
                                     " images cannot be read; repair or remove them:");
  for (const auto& [index, status] : first_bad) absl::StrAppend(&message, "\n  ", status.message());
  const int64_t unnamed = num_bad - static_cast<int64_t>(first_bad.size());
  if (unnamed > 0) absl::StrAppend(&message, "\n  and ", unnamed, " more");
  const auto& decisive = first_lasting.empty() ? first_bad : first_lasting;
  return Annotated(decisive.begin()->second, message);
}

}  // namespace pushpull

// Tested by tests/worker/data/image_folder_source_test.cc.
#include "worker/data/check_examples.h"

#include <iterator>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

#include "common/base/passing_error.h"

namespace pushpull {

absl::Status CheckExamples(int64_t size, absl::string_view name, ThreadPool* pool,
                           StoppedFn stopped,
                           absl::FunctionRef<absl::Status(int64_t, Example*)> get) {
  constexpr size_t kMaxNamed = 10;
  std::vector<Example> scratch(pool->num_threads());
  absl::Mutex mutex;
  int64_t num_bad = 0;
  // Sorted by index, so that the message does not depend on the order of the threads.
  std::map<int64_t, absl::Status> first_bad;
  pool->ParallelFor(size, [&](int64_t i, int thread) {
    if (stopped()) return;
    const absl::Status status = get(i, &scratch[thread]);
    if (status.ok()) return;
    absl::MutexLock lock(&mutex);
    ++num_bad;
    first_bad.emplace(i, status);
    if (first_bad.size() > kMaxNamed) first_bad.erase(std::prev(first_bad.end()));
  });
  if (stopped()) return absl::CancelledError(absl::StrCat("stopped while reading ", name));
  if (num_bad == 0) return absl::OkStatus();
  std::string message = absl::StrCat(name, ": ", num_bad, " of ", size,
                                     " images cannot be read; repair or remove them:");
  for (const auto& [index, status] : first_bad) absl::StrAppend(&message, "\n  ", status.message());
  const int64_t unnamed = num_bad - static_cast<int64_t>(first_bad.size());
  if (unnamed > 0) absl::StrAppend(&message, "\n  and ", unnamed, " more");
  return Annotated(first_bad.begin()->second, message);
}

}  // namespace pushpull

// Tested by tests/worker/records/record_writer_test.cc.
#include "worker/records/record_check.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/passing_error.h"

namespace pushpull {

absl::StatusOr<RecordSummary> CheckRecords(const RecordSource& source,
                                           const RecordProgress& progress, ThreadPool* pool) {
  struct Result {
    absl::Status status;
    int64_t num_boxes = 0;
    BoxIssues issues;
    std::string damage;
  };
  RecordSummary summary;
  std::vector<Example> scratch(pool->num_threads());
  std::vector<Result> group;
  for (int64_t begin = 0; begin < source.size(); begin += kImagesPerGroup) {
    if (progress.stop != nullptr && *progress.stop) {
      return absl::CancelledError(
          absl::StrCat("stopped after ", begin, " of ", source.size(), " records"));
    }
    const int64_t count = std::min(kImagesPerGroup, source.size() - begin);
    group.clear();
    group.resize(count);
    pool->ParallelFor(count, [&](int64_t i, int thread) {
      Example& example = scratch[thread];
      group[i].status = source.Read(begin + i, &example, &group[i].issues);
      if (!group[i].status.ok()) return;
      group[i].num_boxes = static_cast<int64_t>(example.boxes.size());
      group[i].damage = example.image.damage;
    });
    for (Result& result : group) {
      if (IsPassing(result.status)) return result.status;
      summary.AddBoxes(std::move(result.issues));
      if (result.status.ok()) {
        summary.AddGoodImage(result.num_boxes, std::move(result.damage));
      } else {
        ++summary.num_bad_images;
        summary.problems.emplace_back(result.status.message());
      }
    }
    if (progress.report) progress.report(begin + count, source.size());
  }
  return summary;
}

}  // namespace pushpull

// Tested by tests/worker/data/check_examples_test.cc.
#include "worker/data/image_problems.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {

void ImageProblems::Add(int64_t index, absl::string_view problem) {
  constexpr size_t kMaxNamed = 10;
  if (problem.empty()) return;
  ++count_;
  first_.emplace(index, problem);
  if (first_.size() > kMaxNamed) first_.erase(std::prev(first_.end()));
}

std::string ImageProblems::Describe(absl::string_view name, int64_t size,
                                    absl::string_view what) const {
  std::string message = absl::StrCat(name, ": ", count_, " of ", size, " images ", what, ":");
  for (const auto& [index, problem] : first_) absl::StrAppend(&message, "\n  ", problem);
  const int64_t unnamed = count_ - static_cast<int64_t>(first_.size());
  if (unnamed > 0) absl::StrAppend(&message, "\n  and ", unnamed, " more");
  return message;
}

void ImageProblems::LogDamage(absl::string_view name, int64_t size) const {
  if (count_ == 0) return;
  LOG(WARNING) << Describe(name, size, "are damaged and are used as they decode")
               << (count_ > static_cast<int64_t>(first_.size())
                       ? "; make_records --check lists all of TFRecord files"
                       : "");
}

}  // namespace pushpull

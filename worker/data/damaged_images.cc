// Tested by tests/worker/data/check_examples_test.cc.
#include "worker/data/damaged_images.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {

void DamagedImages::Add(int64_t index, const std::string& damage) {
  constexpr size_t kMaxNamed = 10;
  if (damage.empty()) return;
  ++count_;
  first_.emplace(index, damage);
  if (first_.size() > kMaxNamed) first_.erase(std::prev(first_.end()));
}

void DamagedImages::Log(absl::string_view name, int64_t size) const {
  if (count_ == 0) return;
  std::string message = absl::StrCat(name, ": ", count_, " of ", size,
                                     " images are damaged and are used as they decode:");
  for (const auto& [index, damage] : first_) absl::StrAppend(&message, "\n  ", damage);
  const int64_t unnamed = count_ - static_cast<int64_t>(first_.size());
  if (unnamed > 0) {
    absl::StrAppend(&message, "\n  and ", unnamed,
                    " more; make_records --check lists all of TFRecord files");
  }
  LOG(WARNING) << message;
}

}  // namespace pushpull

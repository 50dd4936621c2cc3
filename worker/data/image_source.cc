// Tested by tests/worker/data/idx_source_test.cc.
#include "worker/data/image_source.h"

#include "absl/strings/str_cat.h"

namespace pushpull {

std::vector<std::string> ImageSource::class_names() const {
  std::vector<std::string> names;
  for (int label = 0; label < num_classes(); ++label) names.push_back(absl::StrCat(label + 1));
  return names;
}

}  // namespace pushpull

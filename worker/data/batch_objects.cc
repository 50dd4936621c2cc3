#include "worker/data/batch_objects.h"

namespace pushpull {

void BatchObjects::Assign(const std::vector<std::vector<Box>>& boxes) {
  objects_.clear();
  for (const std::vector<Box>& sample : boxes) {
    for (const Box& box : sample) {
      objects_.push_back({{box.ymin, box.xmin, box.ymax, box.xmax}, box.label, box.weight});
    }
  }
  spans_.clear();
  size_t first = 0;
  for (const std::vector<Box>& sample : boxes) {
    spans_.push_back(absl::MakeConstSpan(objects_).subspan(first, sample.size()));
    first += sample.size();
  }
}

}  // namespace pushpull

#include "worker/data/batch_objects.h"

#include "glog/logging.h"

namespace pushpull {

void BatchObjects::Assign(const std::vector<std::vector<Box>>& boxes,
                          const std::vector<InputWindow>& windows) {
  CHECK_EQ(boxes.size(), windows.size());
  objects_.clear();
  for (size_t i = 0; i < boxes.size(); ++i) {
    const auto [height, width] = windows[i];
    for (const Box& box : boxes[i]) {
      objects_.push_back(
          {{box.ymin * height, box.xmin * width, box.ymax * height, box.xmax * width},
           box.label,
           box.weight});
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

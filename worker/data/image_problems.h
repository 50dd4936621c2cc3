// Counts the images of a data set that have a problem, and names the first of them in one message.
//
// Not thread-safe.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_PROBLEMS_H_
#define PUSHPULL_WORKER_DATA_IMAGE_PROBLEMS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

class ImageProblems {
 public:
  // Adds the image of example `index` unless `problem` is empty. Each index is added at most once.
  void Add(int64_t index, absl::string_view problem);
  int64_t count() const { return count_; }

  // Returns "<name>: 3 of 200 images <what>:" with the problems of the ten images of the lowest
  // indices, so that it does not depend on the order of Add, and the number of the others. `name`
  // is that of the data set, and `size` the number of its images.
  std::string Describe(absl::string_view name, int64_t size, absl::string_view what) const;
  // For problems that are Image::damage, of images that decode all the same: logs them in a
  // warning. Logs nothing if there are none.
  void LogDamage(absl::string_view name, int64_t size) const;

 private:
  int64_t count_ = 0;
  std::map<int64_t, std::string> first_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_PROBLEMS_H_

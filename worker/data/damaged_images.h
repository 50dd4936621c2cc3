// Counts the images of a data set that are damaged although they decode (Image::damage), and names
// them in one warning.
//
// Not thread-safe.
#ifndef PUSHPULL_WORKER_DATA_DAMAGED_IMAGES_H_
#define PUSHPULL_WORKER_DATA_DAMAGED_IMAGES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

class DamagedImages {
 public:
  // Adds the image of example `index` unless `damage`, its Image::damage, is empty. Each index is
  // added at most once.
  void Add(int64_t index, const std::string& damage);

  // Logs a warning with the number of images out of `size` and the ten of the lowest indices, so
  // that it does not depend on the order of Add. Logs nothing if there are none. `name` is that of
  // the data set.
  void Log(absl::string_view name, int64_t size) const;

 private:
  int64_t count_ = 0;
  std::map<int64_t, std::string> first_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_DAMAGED_IMAGES_H_

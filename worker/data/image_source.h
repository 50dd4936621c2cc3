// Random access to a set of labelled images: the one interface between data sets and everything
// that trains or evaluates on them. Implementations: IDX files, folders of images, drawn shapes;
// image_source_factory.h chooses.
//
// Thread rule: immutable after opening; all methods may be called from several threads at once.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_SOURCE_H_
#define PUSHPULL_WORKER_DATA_IMAGE_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/thread_pool.h"

namespace pushpull {

// uint8 [height, width, channels], channels 1 (grey) or 3 (RGB), rows from the top without padding.
struct Image {
  int height = 0;
  int width = 0;
  int channels = 0;
  std::vector<uint8_t> pixels;
};

// Edges as shares of the image's height and width: 0 <= ymin < ymax <= 1, the same for x.
struct Box {
  float ymin = 0;
  float xmin = 0;
  float ymax = 0;
  float xmax = 0;
  int32_t label = 0;       // 0-based: a label map's id less 1
  float weight = 1.0f;     // of the object in the training loss
  bool difficult = false;  // Pascal VOC: neither found nor missed when evaluated
  bool is_crowd = false;   // COCO: one box around many objects
};

struct Example {
  Image image;
  int32_t label = 0;       // 0 <= label < num_classes()
  std::vector<Box> boxes;  // empty where the set has none
};

class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // Number of examples, at least 1.
  virtual int64_t size() const = 0;
  virtual int num_classes() const = 0;
  // One per class, for people: a label map's names where there is one, else 1-based numbers.
  virtual std::vector<std::string> class_names() const;
  // What was opened, for logs: kind, paths, number of images and classes.
  virtual std::string describe() const = 0;

  // Reads example `index`, 0 <= index < size(), into *example, whose memory is used again. May
  // block on the disk. DATA_LOSS or INVALID_ARGUMENT for an image that does not decode, NOT_FOUND
  // for one that has gone; both name the file.
  virtual absl::Status Get(int64_t index, Example* example) const = 0;

  // Reads everything that opening did not verify, on the pool's threads, a bounded amount at a
  // time. The error names the first files that are bad and says how many there are.
  virtual absl::Status Check(ThreadPool* pool) const = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_SOURCE_H_

// Random access to a data set of labelled images. This is the only interface between data sets and
// the code that trains or evaluates on them.
//
// Implementations, which image_sources.h lists:
//   IdxSource          IDX files (the format of MNIST)
//   ImageFolderSource  one folder of images per class
//   RecordSource       TFRecord files of tf.Examples
//   VocSource          a Pascal VOC folder
//   SyntheticSource    drawn shapes, one per image
//   SceneSource        drawn scenes of several objects
// SampledSource (sampled_source.h) wraps one of them and reads every n-th example;
// CachedImageSource (image_cache.h) wraps any and reads decoded images from a cache file.
//
// Thread rule: immutable after opening; all methods may be called from several threads at once.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_SOURCE_H_
#define PUSHPULL_WORKER_DATA_IMAGE_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/base/stop_requested.h"
#include "common/base/thread_pool.h"

namespace pushpull {

// An image of uint8 [height, width, channels] with 1 (grey) or 3 (RGB) channels. The rows begin at
// the top and have no padding between them.
struct Image {
  int height = 0;
  int width = 0;
  int channels = 0;
  std::vector<uint8_t> pixels;
  // If not empty, the image is still encoded: these are the bytes of its JPEG file, which messages
  // call jpeg_name, and `pixels` is empty. Only ImageSource::GetEncoded returns such an image.
  std::string jpeg = {};
  std::string jpeg_name = {};
  // If not empty, the file is damaged, but every row of it was decoded: the file's name and what is
  // wrong. The pixels can be used.
  std::string damage = {};
};

// The bounding box of an object. Edges are shares of the image's height and width. Boxes from an
// ImageSource satisfy 0 <= ymin < ymax <= 1 and the same for x; a random crop without clip_boxes
// may later move edges outside this range.
struct Box {
  float ymin = 0;
  float xmin = 0;
  float ymax = 0;
  float xmax = 0;
  int32_t label = 0;         // 0-based: the id in a label map minus 1
  float weight = 1.0f;       // weight of the object in the training loss
  bool difficult = false;    // Pascal VOC: the evaluation counts it neither as found nor as missed
  bool is_crowd = false;     // COCO: one box around many objects
  bool is_group_of = false;  // Open Images: one box around several objects
  float area = 0;            // area of the object's mask in square pixels of the original image;
                             // 0: use the box's area
};

struct Example {
  Image image;
  int32_t label = 0;       // 0 <= label < num_classes(); 0 if the data set has no image labels
  std::vector<Box> boxes;  // empty if the data set has no boxes
};

class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // Returns the number of examples, at least 1.
  virtual int64_t size() const = 0;
  virtual int num_classes() const = 0;
  // Returns one name per class, for display. The default is "1", "2", ...; most sources return the
  // names in their data or in a label map.
  virtual std::vector<std::string> class_names() const;
  // Describes what was opened: kind, paths, number of images and classes. Used in logs.
  virtual std::string describe() const = 0;
  // Identifies the examples, with their labels and boxes, for the key of an image cache. Two
  // sources whose examples may differ should have different texts. The default is describe().
  virtual std::string identity() const { return describe(); }
  // Says where in the files the boxes are, for the message that there are none. Empty: the data set
  // need not have boxes.
  virtual std::string place_of_boxes() const { return ""; }
  // Says what is wrong with the first box that has been left out so far. Empty: there is none.
  virtual std::string first_box_left_out() const { return ""; }

  // Reads example `index`, 0 <= index < size(), into *example, whose memory is reused. May block on
  // the disk. DATA_LOSS or INVALID_ARGUMENT: the image cannot be decoded. NOT_FOUND: its file is
  // gone. The message names the file.
  virtual absl::Status Get(int64_t index, Example* example) const = 0;

  // As Get, but an image in a JPEG file may stay encoded, so that the caller can decode only a part
  // of it. The errors of decoding are then the caller's. The default is Get.
  virtual absl::Status GetEncoded(int64_t index, Example* example) const {
    return Get(index, example);
  }

  // Reads and verifies all data that was not verified on opening. Blocks until done; works on the
  // pool's threads with one example per thread in memory. The error names the first bad files and
  // gives their number. CANCELLED: `stopped` returned true, which is asked before each image.
  virtual absl::Status Check(ThreadPool* pool, StoppedFn stopped) const = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_SOURCE_H_

// Opens the data set that an input reader of the pipeline config describes.
//
// Thread rule: functions without shared state.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_SOURCE_FACTORY_H_
#define PUSHPULL_WORKER_DATA_IMAGE_SOURCE_FACTORY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/stop_requested.h"
#include "protos/pipeline.pb.h"
#include "worker/data/annotated_image.h"
#include "worker/data/image_source.h"

namespace pushpull {

struct ImageSourceOptions {
  std::string data_dir;    // prepended to relative paths; may be empty
  int num_classes = 0;     // the model's; every label is checked against it
  std::string field_name;  // the reader's name in messages, such as "train_input_reader"
  // The kind of annotation that the model needs. With kEither no data set is refused for a missing
  // kind; a record without an image label then has label 0.
  Annotation annotation = Annotation::kEither;
  // Asked while the data set is opened, and not afterwards: before each record of TFRecord files,
  // which may be millions, before each annotation of a VOC folder and before each MiB of IDX files.
  StopRequested stopped = NeverStopped;
};

// Opens the data set of `reader`, a part of a valid config; with sample_1_of_n_examples above 1, it
// has only the first of each n examples. Blocks while it reads IDX files, VOC annotations or the
// record lengths of TFRecord files; image files are not read yet. NOT_FOUND: a path does not exist.
// INVALID_ARGUMENT: the data do not fit the format or the model. DATA_LOSS: a file is truncated or
// damaged. CANCELLED: options.stopped returned true.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenImageSource(const config::InputReader& reader,
                                                             const ImageSourceOptions& options);

// Returns `path` if it is absolute or data_dir is empty, and data_dir/path otherwise.
std::string ResolveDataPath(absl::string_view data_dir, absl::string_view path);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_SOURCE_FACTORY_H_

// Opens the data set that an input reader of the pipeline config names.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_SOURCE_FACTORY_H_
#define PUSHPULL_WORKER_DATA_IMAGE_SOURCE_FACTORY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "protos/pipeline.pb.h"
#include "worker/data/annotated_image.h"
#include "worker/data/image_source.h"

namespace pushpull {

struct ImageSourceOptions {
  std::string data_dir;    // put before relative paths; may be empty
  int num_classes = 0;     // of the model; every label is checked against it
  std::string field_name;  // of the reader in the config, for messages: "train_input_reader"
  // What the model learns from. kEither refuses no data for what they do not have: a record without
  // image label then has label 0.
  Annotation annotation = Annotation::kEither;
};

// NOT_FOUND: a path does not exist. INVALID_ARGUMENT: the reader is incomplete, or the data do not
// fit the format or the model, among them a reader whose sets have no boxes where boxes are asked
// for, and the reverse. DATA_LOSS: truncated or damaged files. Blocks while IDX files, VOC
// annotations and the lengths of TFRecords are read.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenImageSource(const config::InputReader& reader,
                                                             const ImageSourceOptions& options);

// `path`, behind data_dir when it is relative.
std::string ResolveDataPath(absl::string_view data_dir, absl::string_view path);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_SOURCE_FACTORY_H_

// The list of all image sources: one function per message of the oneof in config::InputReader, each
// defined in the file of its source, and the choice among them. The messages have passed
// CheckReader (common/config/reader_checks.h).
//
// Thread rule: functions without shared state.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_SOURCES_H_
#define PUSHPULL_WORKER_DATA_IMAGE_SOURCES_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"

#include "protos/pipeline.pb.h"
#include "worker/data/image_source_factory.h"
#include "worker/data/label_map.h"

namespace pushpull {

struct SourceOptions : ImageSourceOptions {
  std::string Path(absl::string_view path) const { return ResolveDataPath(data_dir, path); }

  std::optional<LabelMap> label_map;  // of label_map_path, if that is set
};

using SourceOrError = absl::StatusOr<std::unique_ptr<ImageSource>>;

// Each opens the data set of one kind of reader. Errors as OpenImageSource; messages begin with the
// path.
SourceOrError OpenSource(const config::TFRecordInputReader& reader, const SourceOptions& options);
SourceOrError OpenSource(const config::IdxInputReader& reader, const SourceOptions& options);
SourceOrError OpenSource(const config::ImageFolderInputReader& reader,
                         const SourceOptions& options);
SourceOrError OpenSource(const config::VocInputReader& reader, const SourceOptions& options);
SourceOrError OpenSource(const config::SyntheticInputReader& reader, const SourceOptions& options);

// Opens the data set of the reader that the config chose. A reader without a case does not compile.
inline SourceOrError OpenChosenSource(const config::InputReader& reader,
                                      const SourceOptions& options) {
  switch (reader.input_reader_case()) {
    case config::InputReader::kTfRecordInputReader:
      return OpenSource(reader.tf_record_input_reader(), options);
    case config::InputReader::kIdxInputReader:
      return OpenSource(reader.idx_input_reader(), options);
    case config::InputReader::kImageFolderInputReader:
      return OpenSource(reader.image_folder_input_reader(), options);
    case config::InputReader::kVocInputReader:
      return OpenSource(reader.voc_input_reader(), options);
    case config::InputReader::kSyntheticInputReader:
      return OpenSource(reader.synthetic_input_reader(), options);
    case config::InputReader::kExternalInputReader:
    case config::InputReader::INPUT_READER_NOT_SET:
      break;
  }
  LOG(FATAL) << "not a valid reader: " << reader.ShortDebugString();
}

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_SOURCES_H_

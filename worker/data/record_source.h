// Labelled images in TFRecord files of tf.Examples (example_codec.h), read record by record from
// where they lie.
#ifndef PUSHPULL_WORKER_DATA_RECORD_SOURCE_H_
#define PUSHPULL_WORKER_DATA_RECORD_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/file_system.h"
#include "worker/data/annotated_image.h"
#include "worker/data/image_source.h"
#include "worker/data/label_map.h"

namespace pushpull {

struct RecordSourceOptions {
  std::vector<std::string> input_paths;  // as ExpandRecordPaths takes them
  std::optional<LabelMap> label_map;
  int num_classes = 0;
  Annotation annotation = Annotation::kBoxes;
};

class RecordSource final : public ImageSource {
 public:
  // Reads and verifies the lengths of all records, none of their data; keeps the files open.
  // Blocks for as long as the disk takes for one small read per record. Errors as
  // ExpandRecordPaths; DATA_LOSS, naming file, record (from 0 in its file) and offset: damaged,
  // truncated or gzip; INVALID_ARGUMENT: no record in all files, or a label map with more classes
  // than num_classes.
  static absl::StatusOr<std::unique_ptr<RecordSource>> Open(FileSystem& files,
                                                            RecordSourceOptions options);

  int64_t size() const override { return static_cast<int64_t>(records_.size()); }
  int num_classes() const override { return options_.num_classes; }
  std::vector<std::string> class_names() const override;
  std::string describe() const override;
  // Boxes that cannot be used are left out; the first few are logged.
  absl::Status Get(int64_t index, Example* example) const override;
  // Logs how many boxes cannot be used.
  absl::Status Check(ThreadPool* pool) const override;

  // As Get, with a line per box that cannot be used added to *issues.
  absl::Status Read(int64_t index, Example* example, std::vector<std::string>* issues) const;
  int num_files() const { return static_cast<int>(files_.size()); }

 private:
  struct File {
    std::string path;
    std::unique_ptr<ReadableFile> file;
    int64_t first = 0;  // of its records, in records_
  };
  struct Record {
    int64_t offset;
    int32_t file;
  };

  explicit RecordSource(RecordSourceOptions options);
  absl::Status Index(File file);

  const RecordSourceOptions options_;
  std::vector<File> files_;
  std::vector<Record> records_;
  mutable std::atomic<int> num_logged_{0};
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_RECORD_SOURCE_H_

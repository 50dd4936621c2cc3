// A data set in TFRecord files of tf.Examples (example_codec.h). Get reads one record at its
// position in the file.
#ifndef PUSHPULL_WORKER_DATA_RECORD_SOURCE_H_
#define PUSHPULL_WORKER_DATA_RECORD_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

#include "common/base/file_system.h"
#include "worker/data/annotated_image.h"
#include "worker/data/image_source.h"
#include "worker/data/label_map.h"

namespace pushpull {

struct RecordSourceOptions {
  std::vector<std::string> input_paths;  // files, globs or shards; see ExpandRecordPaths
  std::optional<LabelMap> label_map;
  int num_classes = 0;
  Annotation annotation = Annotation::kBoxes;
};

class RecordSource final : public ImageSource {
 public:
  // Reads and verifies the lengths of all records, but not their data. Blocks for one small read
  // per record. Keeps the files open. Errors as ExpandRecordPaths. DATA_LOSS: a file is damaged,
  // truncated or gzipped; the message gives the file, the record (from 0 in its file) and the
  // offset. INVALID_ARGUMENT: the files have no record at all, or the label map has more classes
  // than num_classes. CANCELLED: `stopped` returned true, which is asked before each record.
  static absl::StatusOr<std::unique_ptr<RecordSource>> Open(FileSystem& files,
                                                            RecordSourceOptions options,
                                                            StoppedFn stopped = NeverStopped);

  int64_t size() const override { return static_cast<int64_t>(records_.size()); }
  int num_classes() const override { return options_.num_classes; }
  std::vector<std::string> class_names() const override;
  std::string describe() const override;
  // Has the path, size and modification time of each file, and the label map.
  std::string identity() const override;
  std::string place_of_boxes() const override;
  // The one with the lowest index of all that Get and GetEncoded have read.
  std::string first_box_left_out() const override;
  // Leaves out boxes that cannot be used and clips those that reach outside the image (see
  // DecodeExample), and logs the first 20 of each kind, and each class that the label map does not
  // have once.
  absl::Status Get(int64_t index, Example* example) const override {
    return ReadAndLog(index, /*keep_jpeg=*/false, example);
  }
  absl::Status GetEncoded(int64_t index, Example* example) const override {
    return ReadAndLog(index, /*keep_jpeg=*/true, example);
  }
  // Also logs how many boxes cannot be used, those of classes that the label map does not have, and
  // how many are clipped.
  absl::Status Check(ThreadPool* pool, StoppedFn stopped) const override;

  // As Get, but logs nothing and adds a line to *issues for each box that it leaves out or clips.
  absl::Status Read(int64_t index, Example* example, BoxIssues* issues) const {
    return ReadRecord(index, /*keep_jpeg=*/false, example, issues);
  }

 private:
  absl::Status ReadRecord(int64_t index, bool keep_jpeg, Example* example, BoxIssues* issues) const;
  absl::Status ReadAndLog(int64_t index, bool keep_jpeg, Example* example) const;
  // Logs a line of BoxIssues, unless 20 of its kind have been logged, which *num_logged counts.
  void LogBox(absl::string_view box, absl::string_view ending, std::atomic<int>* num_logged) const;
  // Logs the classes that have not been logged yet, up to 20, and keeps the first box left out.
  void NoteLeftOut(int64_t index, const BoxIssues& issues) const;
  // How the user gets a list of all boxes with a problem.
  std::string CheckCommand() const;

  struct File {
    std::string path;
    std::unique_ptr<ReadableFile> file;
    int64_t modification_time = 0;
    int64_t first = 0;  // index in records_ of the file's first record
  };
  struct Record {
    int64_t offset;  // in the file
    int32_t file;    // index in files_
  };

  explicit RecordSource(RecordSourceOptions options);
  absl::Status Index(File file, StoppedFn stopped);

  const RecordSourceOptions options_;
  std::vector<File> files_;
  std::vector<Record> records_;
  mutable std::atomic<int> num_left_out_logged_{0};
  mutable std::atomic<int> num_clipped_logged_{0};
  mutable absl::Mutex mutex_;
  mutable std::set<std::string> classes_logged_ ABSL_GUARDED_BY(mutex_);
  // The lowest index of an example of which a box was left out, and what is wrong with the box.
  mutable int64_t first_left_out_index_ ABSL_GUARDED_BY(mutex_) = -1;
  mutable std::string first_left_out_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_RECORD_SOURCE_H_

// Writes a data set as TFRecord shards.
#ifndef PUSHPULL_WORKER_RECORDS_RECORD_WRITER_H_
#define PUSHPULL_WORKER_RECORDS_RECORD_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/file_system.h"
#include "common/thread_pool.h"
#include "worker/records/annotated_set.h"
#include "worker/records/record_progress.h"

namespace pushpull {

inline constexpr int kMaxRecordShards = 1000;  // all are open at once

enum class BadData {
  kRefuse,  // one image or box that cannot be used, and nothing is written
  kSkip,    // left out
};

struct RecordWriterOptions {
  std::string output;  // prefix of the files' paths; the folder must exist
  int num_shards = 1;  // 1 .. kMaxRecordShards
  BadData bad_data = BadData::kRefuse;
  RecordProgress progress;
};

struct RecordSummary {
  int64_t num_images = 0;  // good ones
  int64_t num_boxes = 0;
  int64_t num_bad_images = 0;
  int64_t num_bad_boxes = 0;
  std::vector<std::string> problems;  // a line for each bad image and box, in the set's order
  std::vector<std::string> files;     // written; empty when nothing was
};

// Image i goes to shard i mod num_shards, as record i / num_shards (of those that are written), so
// the files depend on the set only. Decodes every image on the pool's threads. All shards are
// written under temporary names and renamed when all are complete; older files of these names are
// replaced. With kRefuse and a problem, and when no image is good, no file is left and
// summary.files is empty. Errors: CANCELLED, and those of the file system; no file is left then,
// unless the error is that of a rename. Blocks until done.
absl::StatusOr<RecordSummary> WriteRecords(FileSystem* files, const AnnotatedSet& set,
                                           const RecordWriterOptions& options, ThreadPool* pool);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_RECORDS_RECORD_WRITER_H_

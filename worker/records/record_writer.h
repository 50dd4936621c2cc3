// Writes a data set as TFRecord shards.
#ifndef PUSHPULL_WORKER_RECORDS_RECORD_WRITER_H_
#define PUSHPULL_WORKER_RECORDS_RECORD_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "common/base/thread_pool.h"
#include "worker/records/annotated_set.h"
#include "worker/records/record_progress.h"

namespace pushpull {

inline constexpr int kMaxRecordShards = 1000;  // all files are open at the same time

// What to do with images and boxes that cannot be used.
enum class BadData {
  kRefuse,  // if there is one, write nothing
  kSkip,    // leave them out
};

struct RecordWriterOptions {
  // Prefix of the paths OUTPUT-00000-of-00001 and so on. The folder is created if it does not
  // exist.
  std::string output;
  int num_shards = 1;  // 1 to kMaxRecordShards (CHECK)
  BadData bad_data = BadData::kRefuse;
  RecordProgress progress;
};

struct RecordSummary {
  int64_t num_images = 0;  // without bad images
  int64_t num_boxes = 0;   // without bad boxes
  int64_t num_bad_images = 0;
  int64_t num_bad_boxes = 0;
  std::vector<std::string> problems;  // one line per bad image or box, in the order of the set
  std::vector<std::string> clipped;   // one line per box that was clipped to its image
  std::vector<std::string> damaged;   // one line per image that is damaged but decodes (a good one)
  std::vector<std::string> files;     // paths of the written files; empty if nothing was written

  // Adds the lines of one image, and counts its bad boxes.
  void AddBoxes(BoxIssues issues);
  // Counts a good image with its good boxes. `damage` is its Image::damage.
  void AddGoodImage(int64_t boxes, std::string damage);
};

// Writes all images of `set`. Decodes every image on the pool's threads. Blocks until done.
//
// The i-th written image goes to shard i mod num_shards, as record i / num_shards. The files thus
// depend only on the set and the options, not on the number of threads. The shards are written
// under temporary names and renamed when all of them are complete. They replace older files of the
// same names. FAILED_PRECONDITION: there are files of the same prefix and another number of shards.
//
// Nothing is written and `files` of the summary is empty if no image is good, or if there is a
// problem and the option is kRefuse. Errors: CANCELLED if progress.stop was set, those of the file
// system, and the first of an image that cannot be read now but may be later (passing_error.h): it
// is not a bad image, and must not be left out. After an error no new file or folder is left,
// unless a rename or the sync of the folder failed.
absl::StatusOr<RecordSummary> WriteRecords(FileSystem* files, const AnnotatedSet& set,
                                           const RecordWriterOptions& options, ThreadPool* pool);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_RECORDS_RECORD_WRITER_H_

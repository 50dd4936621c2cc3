// TFRecord files (event files, tf.Example shards): a sequence of
//   uint64 length | uint32 masked crc32c of the 8 length bytes | data | uint32 masked crc32c of
//   data
// all little-endian. Whole-file compression is not supported; a gzip file is refused by name.
#ifndef PUSHPULL_COMMON_RECORD_IO_H_
#define PUSHPULL_COMMON_RECORD_IO_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/file_system.h"

namespace pushpull {

// Appends the framed record to *out.
void AppendRecord(absl::string_view data, std::string* out);

// Not thread-safe. The file must outlive the reader.
class RecordReader {
 public:
  static constexpr int64_t kMaxRecordBytes = int64_t{1} << 30;

  // `path` is for messages. Reads from `offset`, where a record begins.
  RecordReader(const ReadableFile* file, std::string path, int64_t offset = 0);

  // Reads the next record; false at the end of the file. DATA_LOSS with path and offset: wrong
  // checksum, a length past the limit, or a file that ends within a record. After an error the
  // reader stays where it was.
  absl::StatusOr<bool> Next(std::string* record);
  // Passes over the next record: verifies its length, and that the file is long enough for it, but
  // reads none of its data. Else as Next.
  absl::StatusOr<bool> Skip();
  // Byte offset of the next record.
  int64_t offset() const { return offset_; }

 private:
  // The length of the next record, whose bytes lie within the file; -1 at the end of the file.
  absl::StatusOr<int64_t> ReadLength() const;
  absl::Status Error(absl::string_view what) const;

  const ReadableFile* file_;
  std::string path_;
  int64_t offset_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RECORD_IO_H_

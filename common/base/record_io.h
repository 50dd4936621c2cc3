// Reads and writes TFRecord files (event files, tf.Example shards). A file is a sequence of records
//
//   uint64 length | uint32 length_crc | data, `length` bytes | uint32 data_crc
//
// where both checksums are masked CRC32Cs (crc32c.h), length_crc of the 8 bytes of `length` and
// data_crc of the data. All numbers are little-endian. Compressed files are not supported; the
// error for a gzip file says so.
#ifndef PUSHPULL_COMMON_BASE_RECORD_IO_H_
#define PUSHPULL_COMMON_BASE_RECORD_IO_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/file_system.h"

namespace pushpull {

// Appends `data` as one record to *out.
void AppendRecord(absl::string_view data, std::string* out);

// Reads the records of a file in order. Not thread-safe. The file must outlive the reader.
class RecordReader {
 public:
  static constexpr int64_t kMaxRecordBytes = int64_t{1} << 30;

  // `path` is used in messages only. A record must begin at byte `offset`.
  RecordReader(const ReadableFile* file, std::string path, int64_t offset = 0);

  // Reads the next record, or returns false at the end of the file. DATA_LOSS, with path and
  // offset of the record: a wrong checksum, a length above kMaxRecordBytes, or a file that ends
  // within the record, also one that was shortened after it was opened; the message then names the
  // byte at which the file ends. After an error the reader stays at the same record.
  absl::StatusOr<bool> Next(std::string* record);
  // Skips the next record without reading its data. Verifies the length, and that the file is long
  // enough for the record. Otherwise as Next.
  absl::StatusOr<bool> Skip();
  // Returns the byte offset of the next record.
  int64_t offset() const { return offset_; }

 private:
  // Returns the length of the next record, after checking that the whole record lies within the
  // file. Returns -1 at the end of the file.
  absl::StatusOr<int64_t> ReadLength() const;
  // Returns DATA_LOSS with the path and the offset of the next record.
  absl::Status Error(absl::string_view what) const;
  absl::Status EndsWithin(absl::string_view what) const;
  // As ReadableFile::ReadAt, but DATA_LOSS if the file ends before the bytes that are asked for.
  absl::Status ReadAt(int64_t offset, char* destination, int64_t size) const;

  const ReadableFile* file_;
  std::string path_;
  int64_t offset_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_RECORD_IO_H_

// Reads a file sequentially and decompresses it if its first two bytes are those of gzip.
#ifndef PUSHPULL_WORKER_DATA_MAYBE_GZIP_FILE_H_
#define PUSHPULL_WORKER_DATA_MAYBE_GZIP_FILE_H_

#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "worker/data/read_error.h"

namespace pushpull {

// Not thread-safe.
class MaybeGzipFile {
 public:
  // Errors as OpenToRead (read_error.h).
  static absl::StatusOr<std::unique_ptr<MaybeGzipFile>> Open(const std::string& path);
  ~MaybeGzipFile();
  MaybeGzipFile(const MaybeGzipFile&) = delete;
  MaybeGzipFile& operator=(const MaybeGzipFile&) = delete;

  // Reads the next `size` bytes of content into `out`. Returns how many were read: fewer than
  // `size` only at the end of the content, then 0. Blocks on the disk. DATA_LOSS: the gzip stream
  // is truncated, damaged (its checksum is wrong) or followed by bytes that are not gzip.
  // Others as ReadError.
  absl::StatusOr<size_t> Read(uint8_t* out, size_t size);

  const std::string& path() const { return path_; }

 private:
  MaybeGzipFile(std::string path, FileToRead file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status Refill();
  absl::Status GzipError(const char* what) const;

  const std::string path_;
  const FileToRead file_;
  bool is_gzip_ = false;
  bool in_member_ = false;  // gzip: the end of the current member has not been read yet
  z_stream stream_{};
  std::vector<uint8_t> input_;
  int64_t consumed_ = 0;  // offset of input_ in the file
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_MAYBE_GZIP_FILE_H_

// Reads safetensors files and encodes their headers. A file is
//
// clang-format off
//   uint64 N (little-endian) | N bytes of JSON | the tensors' bytes
//   JSON: {"__metadata__": {string: string, ..},
//          name: {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ..}
// clang-format on
//
// Offsets count from the end of the JSON. The tensors fill the rest of the file without gap or
// overlap, each in C order and little-endian. The writer sorts the tensors by name (byte order),
// writes the data in the same order, and pads the JSON with spaces so that the data begins at a
// multiple of 64 bytes. The reader trusts nothing in the file.
#ifndef PUSHPULL_COMMON_CHECKPOINT_SAFETENSORS_H_
#define PUSHPULL_COMMON_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/file_system.h"

namespace pushpull {

struct SafetensorsTensor {
  std::string name;
  std::string dtype = "F32";
  std::vector<int64_t> shape;  // rank 0 means one element; a dimension may be 0
  int64_t begin = 0;           // in bytes from the start of the data; set by writer and reader
  int64_t end = 0;
  int64_t size_bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  static constexpr int64_t kMaxHeaderBytes = 100'000'000;

  std::vector<SafetensorsTensor> tensors;  // by name, ascending
  std::map<std::string, std::string> metadata;
  int64_t data_offset = 0;  // where the data begins, in bytes from the start of the file

  // Returns the tensor of that name, or null. The pointer is valid while `tensors` is unchanged.
  const SafetensorsTensor* Find(absl::string_view name) const;
};

// Returns the bytes of one element, or nullopt for an unknown dtype.
std::optional<int64_t> SafetensorsElementBytes(absl::string_view dtype);

// Returns the bytes of a file before the data (length and JSON). Sorts header->tensors and sets
// their offsets and data_offset. INVALID_ARGUMENT: a repeated or reserved name, an unknown dtype, a
// negative dimension, a size that overflows, or a header above kMaxHeaderBytes.
absl::StatusOr<std::string> EncodeSafetensorsHeader(SafetensorsHeader* header);

// Parses `json`, a header without its length; data_bytes is the size of the file after it.
// DATA_LOSS: anything is wrong; the message has the reason and, where there is one, the tensor.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes);

// Reads the tensors of one file. Immutable after Open, so all const methods are thread-safe.
class SafetensorsReader {
 public:
  // Reads and checks the header; `path` is used in messages only. DATA_LOSS: the file is no
  // safetensors file.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(std::unique_ptr<ReadableFile> file,
                                                                 std::string path);

  const SafetensorsHeader& header() const { return header_; }
  const std::string& path() const { return path_; }
  // Reads `size` bytes of `tensor`, one of header().tensors, from its byte `offset`. OUT_OF_RANGE:
  // the tensor ends before that.
  absl::Status Read(const SafetensorsTensor& tensor, int64_t offset, void* destination,
                    int64_t size) const;

 private:
  SafetensorsReader(std::unique_ptr<ReadableFile> file, std::string path, SafetensorsHeader header);

  std::unique_ptr<ReadableFile> file_;
  std::string path_;
  SafetensorsHeader header_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CHECKPOINT_SAFETENSORS_H_

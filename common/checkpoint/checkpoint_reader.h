// Finds, verifies and reads checkpoints. An open Checkpoint holds all its files, so deleting the
// folder meanwhile does no harm.
#ifndef PUSHPULL_COMMON_CHECKPOINT_CHECKPOINT_READER_H_
#define PUSHPULL_COMMON_CHECKPOINT_CHECKPOINT_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/checkpoint/manifest.h"
#include "common/file_system.h"
#include "common/safetensors.h"
#include "common/sharding.h"
#include "common/variable_layout.h"

namespace pushpull {

// Thread-safe after Open.
class Checkpoint {
 public:
  // Opens all files first, then verifies manifest, sizes, SHA-256, headers and every tensor's
  // CRC32C. NOT_FOUND: no such checkpoint (any more). DATA_LOSS: it does not verify; the message
  // says which file and why. A read failure (IsReadFailure): whether it verifies is not known.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(FileSystem& files,
                                                          const std::string& directory,
                                                          uint64_t step);

  const CheckpointManifest& manifest() const { return manifest_; }
  const std::string& path() const { return path_; }

  // All tensors by name, ascending: variables, slots, EMA.
  struct NamedTensor {
    std::string name;
    std::vector<int64_t> shape;
  };
  std::vector<NamedTensor> tensors() const;
  // Reads `range` of one tensor. NOT_FOUND: there is none of that name. DATA_LOSS as below.
  absl::Status ReadTensor(const std::string& name, ElementRange range, float* destination) const;

  // Read `range` of the flat vector into destination[0 .. range.size()); padding becomes zero. The
  // checkpoint may have any number of shards. FAILED_PRECONDITION: another model (see CheckLayout).
  // NOT_FOUND: no such slot, or no EMA (named). DATA_LOSS: the bytes changed since Open.
  absl::Status ReadWeights(const VariableLayout& layout, ElementRange range,
                           float* destination) const;
  // Elements of moving statistics, which have no slots, become zero.
  absl::Status ReadSlot(const VariableLayout& layout, absl::string_view slot, ElementRange range,
                        float* destination) const;
  // Elements of moving statistics, which have no EMA, are their values.
  absl::Status ReadEma(const VariableLayout& layout, ElementRange range, float* destination) const;

 private:
  // A run of a tensor's elements in one file.
  struct Part {
    int64_t begin = 0;  // element of the tensor
    int64_t end = 0;
    std::vector<int64_t> shape;  // of the whole tensor
    const SafetensorsReader* file = nullptr;
    const SafetensorsTensor* tensor = nullptr;
    uint32_t crc32c = 0;
  };

  Checkpoint(std::string path, CheckpointManifest manifest);
  absl::Status AddFile(std::unique_ptr<ReadableFile> file, const CheckpointFile& expected);
  absl::Status CheckCoverage();
  // What stands for <name>/<suffix> of a variable that has none.
  enum class WithoutSuffix { kZero, kValue };
  absl::Status ReadVector(const VariableLayout& layout, absl::string_view suffix,
                          ElementRange range, float* destination, WithoutSuffix without) const;

  std::string path_;
  CheckpointManifest manifest_;
  std::vector<std::unique_ptr<SafetensorsReader>> readers_;
  absl::flat_hash_map<std::string, std::vector<Part>> tensors_;
};

// Reads and verifies the manifest alone. Errors as Checkpoint::Open.
absl::StatusOr<CheckpointManifest> ReadManifest(FileSystem& files, const std::string& directory,
                                                uint64_t step);

// Whether an error of this header says that a file could not be read now (EIO, ESTALE, EMFILE,
// EACCES, ...) and nothing about what is in it.
bool IsReadFailure(const absl::Status& status);

struct RecoveryRequest {
  std::string run_id;                      // hex; empty: any
  const VariableLayout* layout = nullptr;  // null: any
  // After a read failure the read is repeated after a pause, so often in total.
  int read_attempts = 4;
  absl::Duration read_pause = absl::Milliseconds(500);
};

// Steps of all folders that look like a checkpoint, ascending. NOT_FOUND when the directory does
// not exist.
absl::StatusOr<std::vector<uint64_t>> ListCheckpoints(FileSystem& files,
                                                      const std::string& directory);

// The newest checkpoint (by epoch, then step) that verifies and fits the request; each refused one
// is logged with the reason, and so is going back to an older one. A read failure that stays is
// returned: an older one would silently undo what may be whole. Blocks for the pauses of the
// request. NOT_FOUND: there is none at all, a fresh start is right.
// FAILED_PRECONDITION (of another run or model) or DATA_LOSS: there are some but none can be used,
// with all reasons; starting afresh would lose a run, so do not.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenNewestCheckpoint(FileSystem& files,
                                                                 const std::string& directory,
                                                                 const RecoveryRequest& request);

// The checkpoint of `step`, or with a negative one the newest that fits the request, with the same
// retries. NOT_FOUND names the steps that are there.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(FileSystem& files,
                                                           const std::string& directory,
                                                           int64_t step,
                                                           const RecoveryRequest& request);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CHECKPOINT_CHECKPOINT_READER_H_

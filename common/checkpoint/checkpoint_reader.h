// Finds, verifies and reads checkpoints. All functions block on the disk.
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

#include "common/base/file_system.h"
#include "common/base/stop_requested.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors.h"
#include "common/model/sharding.h"
#include "common/model/variable_layout.h"

namespace pushpull {

// One verified checkpoint. Immutable after Open, so all methods are thread-safe. It keeps all its
// files open, so it stays readable when its folder is deleted.
class Checkpoint {
 public:
  // Opens all files, then verifies the manifest, all sizes and SHA-256 digests, the headers and the
  // CRC32C of every tensor. Starts again if the checkpoint is replaced meanwhile.
  // NOT_FOUND: there is no such checkpoint, or it has been deleted meanwhile. DATA_LOSS: it does
  // not verify; the message says which file and why. A read failure (IsReadFailure): it could not
  // be read, so it may be good or damaged. CANCELLED, which is also a read failure: `stopped` has
  // returned true. It is asked before each block of a file, and later, by the other methods that
  // read, before each tensor.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(
      FileSystem& files, const std::string& directory, uint64_t step,
      const StopRequested& stopped = NeverStopped);

  const CheckpointManifest& manifest() const { return manifest_; }
  const std::string& path() const { return path_; }

  // Returns all tensors (variables, slots and EMA) by name, ascending.
  struct NamedTensor {
    std::string name;
    std::vector<int64_t> shape;
  };
  std::vector<NamedTensor> tensors() const;
  // Reads the elements `range` of one tensor. NOT_FOUND: there is no tensor of that name.
  // DATA_LOSS: the bytes have changed since Open.
  absl::Status ReadTensor(const std::string& name, ElementRange range, float* destination) const;

  // These three read the elements `range` of a flat vector with the given layout into
  // destination[0 .. range.size()) and set padding to zero. The number of shards in the checkpoint
  // does not matter. FAILED_PRECONDITION: the checkpoint is of another model (see CheckLayout).
  // NOT_FOUND: the checkpoint has no such slot, or no EMA. DATA_LOSS: the bytes have changed since
  // Open.
  absl::Status ReadWeights(const VariableLayout& layout, ElementRange range,
                           float* destination) const;
  // Sets the elements of moving statistics to zero, because they have no slots.
  absl::Status ReadSlot(const VariableLayout& layout, absl::string_view slot, ElementRange range,
                        float* destination) const;
  // Sets the elements of moving statistics to their values, because they have no EMA.
  absl::Status ReadEma(const VariableLayout& layout, ElementRange range, float* destination) const;

 private:
  // The elements [begin, end) of a tensor, which lie in one file.
  struct Part {
    int64_t begin = 0;
    int64_t end = 0;
    std::vector<int64_t> shape;  // of the whole tensor
    const SafetensorsReader* file = nullptr;
    const SafetensorsTensor* tensor = nullptr;
    uint32_t crc32c = 0;
  };

  Checkpoint(std::string path, CheckpointManifest manifest, StopRequested stopped);
  absl::Status AddFile(std::unique_ptr<ReadableFile> file, const CheckpointFile& expected);
  absl::Status CheckCoverage();
  // What ReadVector returns for a moving statistic, which has no tensor <name>/<suffix>.
  enum class WithoutSuffix { kZero, kValue };
  absl::Status ReadVector(const VariableLayout& layout, absl::string_view suffix,
                          ElementRange range, float* destination, WithoutSuffix without) const;

  std::string path_;
  CheckpointManifest manifest_;
  StopRequested stopped_;
  std::vector<std::unique_ptr<SafetensorsReader>> readers_;
  absl::flat_hash_map<std::string, std::vector<Part>> tensors_;
};

// Reads and verifies the manifest alone. Errors as for Checkpoint::Open.
absl::StatusOr<CheckpointManifest> ReadManifest(FileSystem& files, const std::string& directory,
                                                uint64_t step);

// Returns whether an error of a function in this header means that a file could not be read now
// (EIO, ESTALE, EMFILE, EACCES, ...), which says nothing about its contents.
bool IsReadFailure(const absl::Status& status);

// FAILED_PRECONDITION: the checkpoint, which is in `directory`, is of another run than `run_id`.
// The message says what to do if the folder has lost its run id.
absl::Status CheckRun(FileSystem& files, const std::string& directory, const Checkpoint& checkpoint,
                      absl::string_view run_id);

struct RecoveryRequest {
  std::string run_id;                      // hex; empty: any run
  const VariableLayout* layout = nullptr;  // null: any model
  int read_attempts = 4;                   // after read failures, including the first attempt
  absl::Duration read_pause = absl::Milliseconds(500);  // between two attempts
  StopRequested stopped = NeverStopped;                 // ends the search soon, with CANCELLED
};

// Returns the steps of all folders that are named like a checkpoint, ascending. NOT_FOUND: the
// directory does not exist.
absl::StatusOr<std::vector<uint64_t>> ListCheckpoints(FileSystem& files,
                                                      const std::string& directory);

// Returns the newest manifest (by epoch, then step) that verifies and is of the request's run. The
// shard files are not read, and the layout of the request is not used. NOT_FOUND: there is no
// checkpoint. FAILED_PRECONDITION: all manifests that verify are of other runs. DATA_LOSS: no
// manifest verifies. A read failure: as for OpenNewestCheckpoint.
absl::StatusOr<CheckpointManifest> ReadNewestManifest(FileSystem& files,
                                                      const std::string& directory,
                                                      const RecoveryRequest& request);

// Opens the newest checkpoint (by epoch, then step) that verifies and fits the request. Logs each
// checkpoint that it rejects, with the reason, and that it falls back to an older one. Blocks for
// the pauses of the request as well.
//
// Errors:
//   NOT_FOUND            there is no checkpoint at all; a fresh start is right
//   FAILED_PRECONDITION  there are checkpoints but none can be used, at least one because it is of
//                        another run or model. The message has all reasons. Do not start afresh:
//                        that would lose a run
//   DATA_LOSS            there are checkpoints but all of them are damaged. Do not start afresh
//   a read failure       a checkpoint could not be read, even after the retries. It may be good, so
//                        falling back to an older one could silently undo steps
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenNewestCheckpoint(FileSystem& files,
                                                                 const std::string& directory,
                                                                 const RecoveryRequest& request);

// Opens the checkpoint of `step`, with the same retries; its run and model are not checked. A
// negative `step` means OpenNewestCheckpoint. NOT_FOUND: the message lists the steps that exist.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(FileSystem& files,
                                                           const std::string& directory,
                                                           int64_t step,
                                                           const RecoveryRequest& request);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CHECKPOINT_CHECKPOINT_READER_H_

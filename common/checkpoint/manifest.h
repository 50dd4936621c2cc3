// Reads and writes MANIFEST.json, which lists what a checkpoint holds, with checksums of all files.
// Pure functions.
//
// The file is one JSON object. Its first line is exactly
//   {"manifest_sha256":"<64 hex digits>",
// where the digest is the SHA-256 of all bytes after this line. So the checksums cover the manifest
// as well as the files that it lists.
#ifndef PUSHPULL_COMMON_CHECKPOINT_MANIFEST_H_
#define PUSHPULL_COMMON_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/model/variable_layout.h"

namespace pushpull {

struct CheckpointTensor {
  std::string name;
  uint32_t crc32c = 0;  // of the tensor's bytes in this file
};

struct CheckpointFile {
  std::string name;  // "shard-00000-of-00001.safetensors"
  int64_t size_bytes = 0;
  std::string sha256;                     // hex, of the whole file
  std::vector<CheckpointTensor> tensors;  // by name, ascending
};

struct CheckpointManifest {
  static constexpr int kFormatVersion = 1;

  std::string run_id;  // 32 hex digits
  uint64_t epoch = 0;
  uint64_t step = 0;          // the version of the variables
  uint64_t updates = 0;       // of moving statistics: local_steps for each step (docs/FORMATS.md)
  uint64_t num_replicas = 0;  // replicas of the job
  uint64_t seed = 0;
  bool sync = true;
  bool training_done = false;
  uint64_t last_step = 0;   // the last step of the run; 0: it has none, or it was not known
  uint64_t num_images = 0;  // training images, if train_input_reader.num_epochs is set; else 0
  // What the clones compute on, as ps.Arithmetic.device says it, ascending. It is for people only.
  std::vector<std::string> devices;
  double run_started_unix = 0.0;  // seconds; wall time, used by retention only
  double saved_unix = 0.0;        // also tells a server that starts when the next one is due

  std::string layout_signature;
  std::vector<VariableSpec> variables;  // name, shape and kind, in layout order
  // The model is external: `variables` also have the attributes with which a clone has declared
  // them, that is, all fields but `initializer`. train_config has not been applied to them.
  bool declared = false;
  std::vector<std::string> slot_names;  // {"Adam", "Adam_1"}
  bool has_ema = false;
  double ema_decay = 0.0;

  std::string pipeline_config;                         // text
  std::map<std::string, std::string> optimizer_state;  // not interpreted here
  std::map<std::string, std::string> schedule_state;   // not interpreted here
  std::string async_state;  // base64 of ps.PushMarks, not interpreted here; empty in sync mode

  std::vector<CheckpointFile> files;  // one per shard, in shard order
};

// Sets layout_signature and variables.
void DescribeLayout(const VariableLayout& layout, CheckpointManifest* manifest);
// The same for an external model; sets `declared` too.
void DescribeDeclaredLayout(const VariableLayout& declared, CheckpointManifest* manifest);

// Returns the text of MANIFEST.json.
std::string SerializeManifest(const CheckpointManifest& manifest);

// Parses the text of MANIFEST.json; `path` is used in messages only. DATA_LOSS, with the reason: a
// wrong digest, not JSON, another format version, a field that is missing or has the wrong type,
// or a file name other than ShardFileName's.
absl::StatusOr<CheckpointManifest> ParseManifest(absl::string_view text, absl::string_view path);

// Checks that the checkpoint is of the model with this layout. FAILED_PRECONDITION: it is of
// another one; the message names the first variable that differs.
absl::Status CheckLayout(const CheckpointManifest& manifest, const VariableLayout& layout);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CHECKPOINT_MANIFEST_H_

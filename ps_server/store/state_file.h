// clang-format off
// The format of a shard's memory-mapped state file (variable_store.h). Little endian.
//
// The file belongs to one machine. It is never copied to another one, and it is not used after the
// machine has restarted (boot_id), because a crash of the machine is what can tear pages.
//
//   offset   content
//   0        StateHeader, checksummed; written once, after the room for the file is allocated
//   2048     StateControl: what changes while the file is in use
//   4096     two version records of record_bytes each: a VersionRecord, then its metadata
//   then     buffer 0: weights, slots, EMA
//   then     buffer 1: the same
//
// Each vector is float32, has the shard's length and begins at a multiple of 64 bytes.
//
// A buffer holds a whole version if its bit in StateControl::held is set. To write a version, the
// process clears the bit, writes vectors and record, and sets the bit. The process may be killed
// between any two stores: the kernel keeps those made before, in their order.
// clang-format on
#ifndef PUSHPULL_PS_SERVER_STORE_STATE_FILE_H_
#define PUSHPULL_PS_SERVER_STORE_STATE_FILE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "common/model/sharding.h"
#include "common/model/variable_layout.h"
#include "common/optimizer/optimizer.h"

namespace pushpull {

inline constexpr char kStateMagic[9] = "PPSTATE\n";
inline constexpr uint32_t kStateFormatVersion = 3;
// Appended to the name of a file that is set aside because it does not fit. A number may follow.
inline constexpr char kAsideSuffix[] = ".aside";
// Ends the name of a file until its ps_server has recovered.
inline constexpr char kNewSuffix[] = ".new";
inline constexpr int64_t kStatePageBytes = 4096;
inline constexpr int64_t kStateControlOffset = 2048;

// Plain old data at the start of the file. Texts are zero-padded.
struct StateHeader {
  char magic[8];
  uint32_t format_version;
  uint32_t shard;
  uint32_t tasks;
  uint32_t num_vectors;  // weights, slots and EMA
  int64_t range_begin;
  int64_t range_end;
  int64_t record_bytes;
  int64_t vector_stride_bytes;
  int64_t total_bytes;
  char run_id[16];
  char boot_id[40];          // BootId() when the file was made
  char folder_identity[48];  // StateOwner::folder_identity; empty: the folder was not there yet
  char train_dir[512];       // StateOwner::train_dir, cut off after 512 bytes
  char vectors[128];         // names of slots and EMA: "RMSProp RMSProp_1 ExponentialMovingAverage"
  char layout_signature[64];  // VariableLayout::signature
  char checksum[64];          // SHA-256 of all bytes before it, in hex
};

struct StateControl {
  uint64_t held;  // an encoded HeldWord
  int64_t pid;    // of the process that mapped the file last, for messages
};

struct VersionRecord {
  uint64_t version;
  uint64_t epoch;
  int64_t metadata_bytes;
  char checksum[64];  // SHA-256 of the three fields above and the metadata, in hex
};

// Says in one word which buffers hold whole versions and which of them is the newest. The upper
// half of the word is the complement of the lower half, so that a damaged word is recognised.
struct HeldWord {
  bool whole[2] = {false, false};
  int newest = 0;  // meaningless if neither buffer is whole

  uint64_t Encode() const;
  // Returns false if Encode never makes such a word.
  static bool Decode(uint64_t word, HeldWord* held);
};

// Identifies the run, folder and shard to which the state in a file belongs.
struct StateOwner {
  std::string run_id;  // 16 bytes
  // FileSystem::FolderIdentity of train_dir. A copy of the folder has another identity, so that the
  // state of the original is not taken for the copy's.
  std::string folder_identity;
  // The absolute path, for messages and `psctl state`. It may change, because a renamed folder is
  // the same folder.
  std::string train_dir;
  int shard = 0;
  int tasks = 1;
};

// Returns the header that the file of this shard must have.
StateHeader MakeStateHeader(const StateOwner& owner, ElementRange range, int64_t max_metadata_bytes,
                            const VariableLayout& layout, const OptimizerSpec& optimizer);

// Copies the path and the identity of train_dir, if `from` has one, and makes the checksum fit.
// Returns whether anything has changed.
bool SetFolder(const StateHeader& from, StateHeader* header);

// Returns false unless `bytes` begin with an undamaged header of this format version.
bool ReadStateHeader(absl::string_view bytes, StateHeader* header);
// Returns the content of a zero-padded text field of a header.
template <size_t kSize>
std::string HeaderText(const char (&field)[kSize]) {
  return std::string(field, std::find(field, field + kSize, '\0'));
}
// Returns the kernel's boot id, which changes whenever the machine starts. Empty if unknown.
std::string BootId();

// Returns an empty string if `bytes` begin with a header equivalent to `expected`; otherwise says
// in words what differs. A header without a folder's identity is equivalent whatever is expected.
std::string DescribeHeaderMismatch(absl::string_view bytes, const StateHeader& expected);
// Returns whether `bytes` begin with an undamaged header of the run, the folder and the start of
// the machine that `expected` names. If it does not fit all the same, the settings have changed.
bool IsOfSameRun(absl::string_view bytes, const StateHeader& expected);

int64_t RecordOffset(const StateHeader& header, int buffer);
int64_t VectorOffset(const StateHeader& header, int buffer, int vector);
// Returns the size of all vectors of one version, rounded up to whole pages.
int64_t BufferBytes(const StateHeader& header);

// Writes a record and its metadata at `to`, which has room for header.record_bytes. The metadata
// must have at most MaxMetadataBytes.
void WriteVersionRecord(uint64_t version, uint64_t epoch, absl::string_view metadata, char* to);
int64_t MaxMetadataBytes(const StateHeader& header);
// Returns false if the record is damaged.
bool ReadVersionRecord(const StateHeader& header, const char* from, uint64_t* version,
                       uint64_t* epoch, std::string* metadata);
// Reads the number of the newest version from a file that begins with `header`; nothing: it holds
// no whole version.
std::optional<uint64_t> ReadNewestVersion(int fd, const StateHeader& header);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_STATE_FILE_H_

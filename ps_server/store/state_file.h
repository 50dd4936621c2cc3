// The memory-mapped file of one shard (variable_store.h), little endian, one machine's own: it is
// never copied to another and does not outlive a restart of the machine (boot_id), because only
// then may pages be torn.
//
//   offset  what
//   0       StateHeader, checksummed; written once, before anything else
//   2048    StateControl: what changes while the file is in use
//   4096    two version records of record_bytes each: VersionRecord, then metadata
//   then    buffer 0: weights, slots, EMA; buffer 1: the same; each vector float32 of the shard's
//   length, at
//           multiples of 64 bytes
//
// A buffer holds a whole version when its bit in StateControl::held is set. Writing a version:
// clear the bit, write vectors and record, set the bit; a process can be killed between any two
// stores, and the kernel keeps what was stored in order.
#ifndef PUSHPULL_PS_SERVER_STORE_STATE_FILE_H_
#define PUSHPULL_PS_SERVER_STORE_STATE_FILE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

#include "common/sharding.h"
#include "common/variable_layout.h"
#include "ps_server/store/optimizer.h"

namespace pushpull {

inline constexpr char kStateMagic[9] = "PPSTATE\n";
inline constexpr uint32_t kStateFormatVersion = 3;
// What a file's name gets when the file is set aside because it does not fit; a number may follow.
inline constexpr char kAsideSuffix[] = ".aside";
inline constexpr int64_t kStatePageBytes = 4096;
inline constexpr int64_t kStateControlOffset = 2048;

// Plain old data; the file begins with it. Texts are zero-padded.
struct StateHeader {
  char magic[8];
  uint32_t format_version;
  uint32_t shard;
  uint32_t tasks;
  uint32_t num_vectors;  // weights, slots, EMA
  int64_t range_begin;
  int64_t range_end;
  int64_t record_bytes;
  int64_t vector_stride_bytes;
  int64_t total_bytes;
  char run_id[16];
  char boot_id[40];          // the kernel's, of the time of writing
  char folder_identity[48];  // StateOwner::folder_identity
  char train_dir[512];       // StateOwner::train_dir, cut off at the end
  char vectors[128];         // names of slots and EMA: "RMSProp RMSProp_1 ExponentialMovingAverage"
  char layout_signature[64];  // VariableLayout::signature
  char checksum[64];          // SHA-256 of all bytes before, in hex
};

struct StateControl {
  uint64_t held;  // HeldWord
  int64_t pid;    // of the process that has the file open, for messages
};

struct VersionRecord {
  uint64_t version;
  uint64_t epoch;
  int64_t metadata_bytes;
  char checksum[64];  // SHA-256 over the three fields above and the metadata, in hex
};

// Which buffers hold whole versions and which one is the newest, in one word: the lower half says
// it, the upper half is its complement, so that no damaged word passes.
struct HeldWord {
  bool whole[2] = {false, false};
  int newest = 0;  // of no meaning when neither is whole

  uint64_t Encode() const;
  // False: not a word that Encode makes.
  static bool Decode(uint64_t word, HeldWord* held);
};

// The run, folder and shard that the state in a file belongs to.
struct StateOwner {
  std::string run_id;  // 16 bytes
  // FileSystem::FolderIdentity of train_dir. A copy of the folder has another one, so state of the
  // original is not mistaken for the copy's.
  std::string folder_identity;
  std::string train_dir;  // absolute path, for messages and `psctl state`; may change by a move
  int shard = 0;
  int tasks = 1;
};

// The header that a file of this shard has to have.
StateHeader MakeStateHeader(const StateOwner& owner, ElementRange range, int64_t max_metadata_bytes,
                            const VariableLayout& layout, const OptimizerSpec& optimizer);

// False when `bytes` do not begin with an undamaged header of this format version.
bool ReadStateHeader(absl::string_view bytes, StateHeader* header);
// The contents of a zero-padded text field of a header.
template <size_t kSize>
std::string HeaderText(const char (&field)[kSize]) {
  return std::string(field, std::find(field, field + kSize, '\0'));
}
// Changes whenever the machine starts; empty where the kernel does not tell.
std::string BootId();

// Empty when `bytes` begins with a header that means the same as `expected`; else what differs, in
// words.
std::string DescribeHeaderMismatch(absl::string_view bytes, const StateHeader& expected);

int64_t RecordOffset(const StateHeader& header, int buffer);
int64_t VectorOffset(const StateHeader& header, int buffer, int vector);
// All vectors of a version; whole pages.
int64_t BufferBytes(const StateHeader& header);

// Writes a record and its metadata at `to`, which has header.record_bytes; the metadata has to fit.
void WriteVersionRecord(uint64_t version, uint64_t epoch, absl::string_view metadata, char* to);
int64_t MaxMetadataBytes(const StateHeader& header);
// False: damaged.
bool ReadVersionRecord(const StateHeader& header, const char* from, uint64_t* version,
                       uint64_t* epoch, std::string* metadata);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_STATE_FILE_H_

#include "ps_server/store/state_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/sha256.h"

namespace pushpull {
namespace {

static_assert(std::is_trivially_copyable_v<StateHeader>);
static_assert(sizeof(StateHeader) == 936 && sizeof(StateHeader) <= kStateControlOffset);
static_assert(sizeof(StateControl) == 16 && sizeof(VersionRecord) == 88);

// Staggers the vectors within their pages. If all began at the same place of a page, the streams of
// the apply pass would compete for the same sets of the first-level cache.
constexpr int64_t kVectorSkewBytes = 5 * 64;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

template <size_t kSize>
void SetText(absl::string_view text, char (&field)[kSize]) {
  CHECK_LE(text.size(), kSize) << text;
  std::memset(field, 0, kSize);
  std::memcpy(field, text.data(), text.size());
}

std::string Checksum(const StateHeader& header) {
  return Sha256Hex(
      absl::string_view(reinterpret_cast<const char*>(&header), offsetof(StateHeader, checksum)));
}

std::string Checksum(const VersionRecord& record, absl::string_view metadata) {
  return Sha256Hex(absl::StrCat(
      absl::string_view(reinterpret_cast<const char*>(&record), offsetof(VersionRecord, checksum)),
      metadata));
}

std::string VectorNames(const OptimizerSpec& optimizer) {
  std::string names;
  for (int slot = 0; slot < optimizer.num_slots(); ++slot) {
    absl::StrAppend(&names, slot == 0 ? "" : " ", optimizer.slot_name(slot));
  }
  if (optimizer.has_ema) absl::StrAppend(&names, " ", kEmaName);
  return names;
}

// Returns why the bytes are not the header of a file that a server with the header `expected` may
// need: it is damaged, or of another run, folder or start of the machine. Empty if they are.
std::string DescribeForeign(absl::string_view bytes, const StateHeader& expected) {
  if (bytes.size() < sizeof(StateHeader)) {
    return absl::StrCat("it is damaged: ", bytes.size(), " bytes are too few for a header");
  }
  StateHeader found;
  std::memcpy(&found, bytes.data(), sizeof(found));
  if (std::memcmp(found.magic, expected.magic, sizeof(found.magic)) != 0) {
    return absl::StrCat("it is no state file: it begins with \"",
                        absl::CHexEscape(bytes.substr(0, sizeof(found.magic))), "\"");
  }
  if (found.format_version != expected.format_version) {
    return absl::StrCat("it has format version ", found.format_version, ", expected ",
                        expected.format_version);
  }
  if (HeaderText(found.checksum) != Checksum(found)) return "its header is damaged (checksum)";
  if (HeaderText(found.boot_id) != HeaderText(expected.boot_id)) {
    return "it was written before the machine last started";
  }
  if (std::memcmp(found.run_id, expected.run_id, sizeof(found.run_id)) != 0) {
    const auto hex = [](const char(&id)[16]) {
      return absl::BytesToHexString(absl::string_view(id, sizeof(id)));
    };
    return absl::StrCat("it belongs to run ", hex(found.run_id), ", this is run ",
                        hex(expected.run_id));
  }
  // A task may have made the file before its train_dir was there; then the run decides.
  const std::string folder = HeaderText(found.folder_identity);
  if (!folder.empty() && folder != HeaderText(expected.folder_identity)) {
    return absl::StrCat("it belongs to the train_dir that was ", HeaderText(found.train_dir),
                        ", and this one, ", HeaderText(expected.train_dir),
                        ", is a copy of that folder or was made anew");
  }
  return "";
}

}  // namespace

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id.substr(0, sizeof(StateHeader::boot_id));
}

uint64_t HeldWord::Encode() const {
  const uint32_t low = (whole[0] ? 1u : 0u) | (whole[1] ? 2u : 0u) | (newest == 1 ? 4u : 0u);
  return low | static_cast<uint64_t>(~low) << 32;
}

bool HeldWord::Decode(uint64_t word, HeldWord* held) {
  const uint32_t low = static_cast<uint32_t>(word);
  if (low > 7 || static_cast<uint32_t>(word >> 32) != ~low) return false;
  *held = {{(low & 1) != 0, (low & 2) != 0}, (low & 4) != 0 ? 1 : 0};
  if ((held->whole[0] || held->whole[1]) && !held->whole[held->newest]) return false;
  return true;
}

StateHeader MakeStateHeader(const StateOwner& owner, ElementRange range, int64_t max_metadata_bytes,
                            const VariableLayout& layout, const OptimizerSpec& optimizer) {
  StateHeader header;
  std::memset(&header, 0, sizeof(header));
  SetText(absl::string_view(kStateMagic, sizeof(header.magic)), header.magic);
  header.format_version = kStateFormatVersion;
  header.shard = owner.shard;
  header.tasks = owner.tasks;
  header.num_vectors = 1 + optimizer.num_slots() + (optimizer.has_ema ? 1 : 0);
  header.range_begin = range.begin;
  header.range_end = range.end;
  header.record_bytes = RoundUp(sizeof(VersionRecord) + max_metadata_bytes, kStatePageBytes);
  header.vector_stride_bytes =
      RoundUp(range.size() * static_cast<int64_t>(sizeof(float)), kStatePageBytes) +
      kVectorSkewBytes;
  header.total_bytes = RoundUp(VectorOffset(header, 2, 0), kStatePageBytes);
  SetText(owner.run_id, header.run_id);
  SetText(BootId(), header.boot_id);
  SetText(owner.folder_identity, header.folder_identity);
  SetText(owner.train_dir.substr(0, sizeof(header.train_dir)), header.train_dir);
  SetText(VectorNames(optimizer), header.vectors);
  SetText(layout.signature(), header.layout_signature);
  SetText(Checksum(header), header.checksum);
  return header;
}

bool SetFolder(const StateHeader& from, StateHeader* header) {
  const StateHeader before = *header;
  std::memcpy(header->train_dir, from.train_dir, sizeof(header->train_dir));
  if (!HeaderText(from.folder_identity).empty()) {
    std::memcpy(header->folder_identity, from.folder_identity, sizeof(header->folder_identity));
  }
  SetText(Checksum(*header), header->checksum);
  return std::memcmp(&before, header, sizeof(before)) != 0;
}

std::string DescribeHeaderMismatch(absl::string_view bytes, const StateHeader& expected) {
  std::string foreign = DescribeForeign(bytes, expected);
  if (!foreign.empty()) return foreign;
  StateHeader found;
  std::memcpy(&found, bytes.data(), sizeof(found));
  if (HeaderText(found.layout_signature) != HeaderText(expected.layout_signature)) {
    return "it belongs to another model (layout signature)";
  }
  if (found.shard != expected.shard || found.tasks != expected.tasks ||
      found.range_begin != expected.range_begin || found.range_end != expected.range_end) {
    return absl::StrCat("it is shard ", found.shard, " of ", found.tasks, ", this is shard ",
                        expected.shard, " of ", expected.tasks);
  }
  if (HeaderText(found.vectors) != HeaderText(expected.vectors)) {
    const auto names = [](const StateHeader& header) {
      const std::string text = HeaderText(header.vectors);
      return text.empty() ? std::string("(none)") : text;
    };
    return absl::StrCat("it holds the optimizer's vectors ", names(found), ", this run has ",
                        names(expected));
  }
  if (found.record_bytes != expected.record_bytes || found.total_bytes != expected.total_bytes) {
    return absl::StrCat("it has ", found.total_bytes, " bytes with records of ", found.record_bytes,
                        ", expected ", expected.total_bytes, " and ", expected.record_bytes);
  }
  return "";
}

bool IsOfSameRun(absl::string_view bytes, const StateHeader& expected) {
  return DescribeForeign(bytes, expected).empty();
}

bool ReadStateHeader(absl::string_view bytes, StateHeader* header) {
  if (bytes.size() < sizeof(StateHeader)) return false;
  std::memcpy(header, bytes.data(), sizeof(*header));
  return std::memcmp(header->magic, kStateMagic, sizeof(header->magic)) == 0 &&
         header->format_version == kStateFormatVersion &&
         HeaderText(header->checksum) == Checksum(*header);
}

int64_t RecordOffset(const StateHeader& header, int buffer) {
  return kStatePageBytes + buffer * header.record_bytes;
}

int64_t VectorOffset(const StateHeader& header, int buffer, int vector) {
  return RecordOffset(header, 2) + buffer * BufferBytes(header) +
         vector * header.vector_stride_bytes;
}

int64_t BufferBytes(const StateHeader& header) {
  return RoundUp(header.num_vectors * header.vector_stride_bytes, kStatePageBytes);
}

void WriteVersionRecord(uint64_t version, uint64_t epoch, absl::string_view metadata, char* to) {
  VersionRecord record;
  std::memset(&record, 0, sizeof(record));
  record.version = version;
  record.epoch = epoch;
  record.metadata_bytes = static_cast<int64_t>(metadata.size());
  SetText(Checksum(record, metadata), record.checksum);
  std::memcpy(to, &record, sizeof(record));
  std::memcpy(to + sizeof(record), metadata.data(), metadata.size());
}

int64_t MaxMetadataBytes(const StateHeader& header) {
  return header.record_bytes - static_cast<int64_t>(sizeof(VersionRecord));
}

bool ReadVersionRecord(const StateHeader& header, const char* from, uint64_t* version,
                       uint64_t* epoch, std::string* metadata) {
  VersionRecord record;
  std::memcpy(&record, from, sizeof(record));
  if (record.metadata_bytes < 0 || record.metadata_bytes > MaxMetadataBytes(header)) return false;
  const absl::string_view bytes(from + sizeof(record), record.metadata_bytes);
  if (HeaderText(record.checksum) != Checksum(record, bytes)) return false;
  *version = record.version;
  *epoch = record.epoch;
  *metadata = std::string(bytes);
  return true;
}

std::optional<uint64_t> ReadNewestVersion(int fd, const StateHeader& header) {
  const auto read = [fd](void* data, size_t size, off_t offset) {
    return pread(fd, data, size, offset) == static_cast<ssize_t>(size);
  };
  StateControl control{};
  HeldWord held;
  if (!read(&control, sizeof(control), kStateControlOffset) ||
      !HeldWord::Decode(control.held, &held) || !held.whole[held.newest]) {
    return std::nullopt;
  }
  std::string record(header.record_bytes, '\0');
  if (!read(record.data(), record.size(), RecordOffset(header, held.newest))) return std::nullopt;
  uint64_t version = 0;
  uint64_t epoch = 0;
  std::string metadata;
  if (!ReadVersionRecord(header, record.data(), &version, &epoch, &metadata)) return std::nullopt;
  return version;
}

}  // namespace pushpull

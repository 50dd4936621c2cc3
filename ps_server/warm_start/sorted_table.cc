// Tested by tests/ps_server/warm_start/tensor_source_test.cc.
#include "ps_server/warm_start/sorted_table.h"

#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/base/crc32c.h"
#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr uint64_t kMagic = 0xdb4775248b80fb57ULL;
constexpr size_t kFooterBytes = 48;
constexpr size_t kTrailerBytes = 5;  // compression and checksum
// The keys of a block may take at most this many times its size. Writers store a full key at least
// every 16 entries, so genuine blocks stay below; a hostile one could claim far more memory.
constexpr size_t kMaxKeyGrowth = 64;

template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

struct BlockHandle {
  uint64_t offset = 0;
  uint64_t size = 0;
};

// Removes a varint from the front of *in. Returns false if *in ends within it or if it is longer
// than 10 bytes.
bool TakeVarint(absl::string_view* in, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !in->empty(); shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(in->front());
    in->remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

bool TakeHandle(absl::string_view* in, BlockHandle* handle) {
  return TakeVarint(in, &handle->offset) && TakeVarint(in, &handle->size);
}

class TableReader {
 public:
  TableReader(absl::string_view file, absl::string_view path) : file_(file), path_(path) {}

  absl::StatusOr<std::vector<TableEntry>> ReadAll() {
    if (file_.size() < kFooterBytes) return Bad("it is too short for a footer");
    absl::string_view footer = file_.substr(file_.size() - kFooterBytes);
    if (Load<uint64_t>(footer.data() + kFooterBytes - 8) != kMagic) {
      return Bad("its last bytes are not those of a checkpoint index");
    }
    BlockHandle metaindex, index;
    if (!TakeHandle(&footer, &metaindex) || !TakeHandle(&footer, &index)) {
      return Bad("the footer's block handles are malformed");
    }
    PP_ASSIGN_OR_RETURN(const std::vector<TableEntry> blocks, ReadBlock(index, "the index block"));
    std::vector<TableEntry> all;
    for (size_t i = 0; i < blocks.size(); ++i) {
      absl::string_view value = blocks[i].second;
      BlockHandle handle;
      const std::string name = absl::StrCat("data block ", i);
      if (!TakeHandle(&value, &handle))
        return Bad(absl::StrCat("the handle of ", name, " is malformed"));
      PP_ASSIGN_OR_RETURN(std::vector<TableEntry> entries, ReadBlock(handle, name));
      for (TableEntry& entry : entries) {
        if (!all.empty() && entry.first <= all.back().first) {
          return Bad(absl::StrCat("the keys of ", name, " do not ascend"));
        }
        all.push_back(std::move(entry));
      }
    }
    return all;
  }

 private:
  absl::Status Bad(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(path_, ": ", what));
  }

  absl::StatusOr<std::vector<TableEntry>> ReadBlock(const BlockHandle& handle,
                                                    absl::string_view name) const {
    const uint64_t limit = file_.size() - kFooterBytes;
    if (handle.offset > limit || handle.size > limit - handle.offset ||
        limit - handle.offset - handle.size < kTrailerBytes) {
      return Bad(absl::StrCat(name, " lies outside of the file"));
    }
    const absl::string_view block = file_.substr(handle.offset, handle.size);
    const char* const trailer = block.data() + block.size();
    const uint32_t crc = Crc32c(file_.substr(handle.offset, handle.size + 1));
    if (UnmaskCrc32c(Load<uint32_t>(trailer + 1)) != crc) {
      return Bad(absl::StrCat(name, " at offset ", handle.offset, " has a wrong checksum"));
    }
    if (trailer[0] != 0) {
      return absl::UnimplementedError(absl::StrCat(
          path_, ": ", name, " is compressed (", static_cast<int>(trailer[0]),
          "); TensorFlow writes a checkpoint's index uncompressed: save the checkpoint again"));
    }
    return ParseEntries(block, name);
  }

  absl::StatusOr<std::vector<TableEntry>> ParseEntries(absl::string_view block,
                                                       absl::string_view name) const {
    const absl::Status malformed = Bad(absl::StrCat(name, " is malformed"));
    if (block.size() < 4) return malformed;
    const uint64_t restarts = Load<uint32_t>(block.data() + block.size() - 4);
    if (restarts > (block.size() - 4) / 4) return malformed;
    absl::string_view left = block.substr(0, block.size() - 4 - 4 * restarts);
    std::vector<TableEntry> entries;
    std::string key;
    size_t key_bytes = 0;
    while (!left.empty()) {
      uint64_t shared = 0, unshared = 0, size = 0;
      if (!TakeVarint(&left, &shared) || !TakeVarint(&left, &unshared) ||
          !TakeVarint(&left, &size) || shared > key.size() || unshared > left.size() ||
          size > left.size() - unshared) {
        return malformed;
      }
      key.resize(shared);
      key.append(left.data(), unshared);
      key_bytes += key.size();
      if (key_bytes > kMaxKeyGrowth * block.size()) {
        return Bad(absl::StrCat(name, " of ", block.size(), " bytes repeats its keys too often"));
      }
      left.remove_prefix(unshared);
      entries.emplace_back(key, std::string(left.substr(0, size)));
      left.remove_prefix(size);
    }
    return entries;
  }

  const absl::string_view file_;
  const absl::string_view path_;
};

}  // namespace

absl::StatusOr<std::vector<TableEntry>> ReadSortedTable(absl::string_view file,
                                                        absl::string_view path) {
  return TableReader(file, path).ReadAll();
}

}  // namespace pushpull

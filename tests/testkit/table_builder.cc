#include "tests/testkit/table_builder.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

#include "common/base/crc32c.h"

namespace pushpull {
namespace {

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AppendFixed(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

std::string Handle(uint64_t offset, uint64_t size) {
  std::string handle;
  AppendVarint(offset, &handle);
  AppendVarint(size, &handle);
  return handle;
}

// Appends a block with its trailer and returns the block's handle.
std::string AppendBlock(absl::string_view block, std::string* file) {
  const std::string handle = Handle(file->size(), block.size());
  const std::string covered = absl::StrCat(block, absl::string_view("\0", 1));
  absl::StrAppend(file, covered);
  AppendFixed(MaskCrc32c(Crc32c(covered)), 4, file);
  return handle;
}

}  // namespace

std::string EncodeTableBlock(const std::vector<TableEntry>& entries) {
  std::string block;
  for (const auto& [key, value] : entries) {
    AppendVarint(0, &block);
    AppendVarint(key.size(), &block);
    AppendVarint(value.size(), &block);
    absl::StrAppend(&block, key, value);
  }
  AppendFixed(0, 4, &block);  // the only restart offset, then the number of restarts
  AppendFixed(1, 4, &block);
  return block;
}

std::string WrapTableBlocks(absl::string_view data_block, absl::string_view index_block) {
  std::string file;
  AppendBlock(data_block, &file);
  const std::string index = AppendBlock(index_block, &file);
  std::string footer = Handle(0, 0) + index;
  footer.resize(40, '\0');
  AppendFixed(0xdb4775248b80fb57ULL, 8, &footer);
  return file + footer;
}

std::string WrapTableBlock(absl::string_view data_block) {
  return WrapTableBlocks(data_block, EncodeTableBlock({{"~", Handle(0, data_block.size())}}));
}

}  // namespace pushpull

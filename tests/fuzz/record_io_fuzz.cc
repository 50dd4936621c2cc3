// The input is a record file, which is read twice: unchanged, and with corrected checksums.
#include <string>

#include "common/base/crc32c.h"
#include "common/base/record_io.h"
#include "tests/fuzz/fuzz_input.h"

namespace pushpull {
namespace {

constexpr size_t kLengthBytes = 12;
constexpr size_t kFooterBytes = 4;

uint64_t LittleEndian64(const char* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

void StoreChecksum(uint32_t crc, char* out) {
  const uint32_t masked = MaskCrc32c(crc);
  for (int i = 0; i < 4; ++i) out[i] = static_cast<char>(masked >> (8 * i));
}

std::string WithRightChecksums(std::string bytes) {
  size_t offset = 0;
  while (bytes.size() - offset >= kLengthBytes) {
    char* const header = bytes.data() + offset;
    StoreChecksum(Crc32c(header, 8), header + 8);
    const uint64_t length = LittleEndian64(header);
    const size_t left = bytes.size() - offset - kLengthBytes;
    if (left < kFooterBytes || length > left - kFooterBytes) break;
    char* const data = header + kLengthBytes;
    StoreChecksum(Crc32c(data, length), data + length);
    offset += kLengthBytes + length + kFooterBytes;
  }
  return bytes;
}

// Writing the records that were read must give the same bytes, and Skip must find at least as many
// records.
void ReadAll(const std::string& bytes) {
  const FuzzFile file(bytes);
  RecordReader reader(&file, "fuzz");
  RecordReader skipper(&file, "fuzz");
  std::string record, written;
  while (true) {
    const int64_t before = reader.offset();
    const absl::StatusOr<bool> more = reader.Next(&record);
    if (!more.ok() || !*more) {
      CHECK_EQ(reader.offset(), before);
      break;
    }
    AppendRecord(record, &written);
    const absl::StatusOr<bool> skipped = skipper.Skip();
    CHECK(skipped.ok() && *skipped) << skipped.status();
    CHECK_EQ(skipper.offset(), reader.offset());
  }
  CHECK_EQ(written.size(), static_cast<size_t>(reader.offset()));
  CHECK(bytes.compare(0, written.size(), written) == 0);
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(pushpull::AsText(data, size));
  pushpull::ReadAll(bytes);
  pushpull::ReadAll(pushpull::WithRightChecksums(bytes));
  return 0;
}

// If the first byte is 0, the rest is a file. Otherwise the rest is the header's JSON, and the
// first byte is the number of data bytes after it.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz_input.h"

namespace pushpull {
namespace {

std::string MakeFile(absl::string_view input) {
  const size_t data_bytes = TakeByte(&input);
  if (data_bytes == 0) return std::string(input);
  std::string prefix;
  for (int i = 0; i < 8; ++i)
    prefix.push_back(static_cast<char>(uint64_t{input.size()} >> (8 * i)));
  return absl::StrCat(prefix, input, std::string(data_bytes, '\x01'));
}

// The header must have the same tensors after writing and reading.
void CheckRoundTrip(const SafetensorsHeader& header, int64_t data_bytes) {
  SafetensorsHeader copy = header;
  const absl::StatusOr<std::string> bytes = EncodeSafetensorsHeader(&copy);
  CHECK(bytes.ok()) << bytes.status();
  const absl::StatusOr<SafetensorsHeader> again =
      ParseSafetensorsHeader(absl::string_view(*bytes).substr(8), data_bytes);
  CHECK(again.ok()) << again.status();
  CHECK(again->metadata == header.metadata);
  CHECK_EQ(again->tensors.size(), header.tensors.size());
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const SafetensorsTensor& a = again->tensors[i];
    const SafetensorsTensor& b = header.tensors[i];
    CHECK(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape);
    CHECK_EQ(a.size_bytes(), b.size_bytes());
  }
}

void Run(absl::string_view input) {
  auto file = std::make_unique<FuzzFile>(MakeFile(input));
  const int64_t file_bytes = file->size_bytes();
  const absl::StatusOr<std::unique_ptr<SafetensorsReader>> reader =
      SafetensorsReader::Open(std::move(file), "fuzz");
  if (!reader.ok()) {
    CHECK(absl::IsDataLoss(reader.status())) << reader.status();
    return;
  }
  const SafetensorsHeader& header = (*reader)->header();
  for (const SafetensorsTensor& tensor : header.tensors) {
    CHECK(header.Find(tensor.name) == &tensor);
    CHECK_LE(tensor.size_bytes(), file_bytes);
    std::vector<char> bytes(tensor.size_bytes());
    CHECK((*reader)->Read(tensor, 0, bytes.data(), tensor.size_bytes()).ok());
  }
  CheckRoundTrip(header, file_bytes - header.data_offset);
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pushpull::Run(pushpull::AsText(data, size));
  return 0;
}

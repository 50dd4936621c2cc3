// First byte: even: the rest is an index file; odd: the rest are the index's entries, each a byte
// of key length, a byte of value length, key, value. The data file is kDataBytes long.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/fine_tune/tensor_bundle.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/testutil/memory_file_system.h"
#include "tests/testutil/table_builder.h"

namespace pushpull {
namespace {

constexpr int64_t kDataBytes = 256;

std::string MakeIndex(absl::string_view input) {
  if (TakeByte(&input) % 2 == 0) return std::string(input);
  // A header of one data file, unless the input brings its own.
  std::map<std::string, std::string> entries = {{"", "\x08\x01"}};
  while (!input.empty()) {
    const size_t key_bytes = TakeByte(&input);
    const size_t value_bytes = TakeByte(&input);
    const std::string key(TakeBytes(&input, key_bytes));
    entries[key] = std::string(TakeBytes(&input, value_bytes));
  }
  return WrapTableBlock(EncodeTableBlock({entries.begin(), entries.end()}));
}

void Run(absl::string_view input) {
  MemoryFileSystem files;
  files.Corrupt("/model.index", MakeIndex(input));
  files.Corrupt("/model.data-00000-of-00001", std::string(kDataBytes, '\x01'));
  const absl::StatusOr<std::unique_ptr<TensorSource>> source = OpenTensorBundle(files, "/model");
  if (!source.ok()) return;
  const std::vector<SourceTensor>& tensors = (*source)->tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SourceTensor& tensor = tensors[i];
    CHECK(i == 0 || tensors[i - 1].name < tensor.name);
    CHECK((*source)->Find(tensor.name) == &tensor);
    const int64_t elements = tensor.num_elements();
    CHECK_GE(elements, 0);
    if (!tensor.unusable.empty()) continue;
    CHECK_LE(elements, kDataBytes / 4);
    std::vector<float> values(elements);
    const absl::Status status = (*source)->Read(tensor, absl::MakeSpan(values));
    CHECK(status.ok() || absl::IsDataLoss(status)) << status;
  }
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pushpull::Run(pushpull::AsText(data, size));
  return 0;
}

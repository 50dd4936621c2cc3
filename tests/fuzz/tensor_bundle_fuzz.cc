// The first byte modulo 3 chooses: 0: the rest is an index file; 1: the rest is the entries of the
// index, each a byte of key length, a byte of value length, key and value; 2: the rest is the
// fields of tensors, because the fuzzer cannot look into libprotobuf. The data file has kDataBytes
// bytes.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/crc32c.h"
#include "protos/tensor_bundle.pb.h"
#include "ps_server/warm_start/tensor_bundle.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/table_builder.h"

namespace pushpull {
namespace {

constexpr int64_t kDataBytes = 256;

int64_t TakeInt64(absl::string_view* input) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= uint64_t{TakeByte(input)} << (8 * i);
  return static_cast<int64_t>(value);
}

// Takes dtype, number of dimensions, dimensions, offset, size, shard, and whether there are slices.
std::string TakeTensor(absl::string_view* input) {
  tensorflow::BundleEntryProto entry;
  entry.set_dtype(TakeByte(input));
  const int num_dimensions = TakeByte(input) % 4;
  for (int i = 0; i < num_dimensions; ++i) {
    entry.mutable_shape()->add_dim()->set_size(TakeInt64(input));
  }
  entry.set_offset(TakeInt64(input));
  entry.set_size(TakeInt64(input));
  entry.set_shard_id(static_cast<int8_t>(TakeByte(input)));
  if (TakeByte(input) == 1) entry.add_slices();
  const int64_t data_bytes = std::clamp<int64_t>(entry.size(), 0, kDataBytes);
  entry.set_crc32c(MaskCrc32c(Crc32c(std::string(data_bytes, '\x01'))));
  return entry.SerializeAsString();
}

std::string MakeIndex(absl::string_view input) {
  const uint8_t mode = TakeByte(&input) % 3;
  if (mode == 0) return std::string(input);
  // A header that names one data file, unless the input has a header.
  std::map<std::string, std::string> entries = {{"", "\x08\x01"}};
  while (mode == 2 && !input.empty()) {
    entries[std::string(1, static_cast<char>(entries.size()))] = TakeTensor(&input);
  }
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

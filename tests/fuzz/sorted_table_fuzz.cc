// The first byte modulo 3 chooses: 0: the rest is a file; 1: a data block; 2: the next byte tells
// where the data block ends and the index block begins. Blocks get correct checksums.
#include <string>
#include <vector>

#include "ps_server/warm_start/sorted_table.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/testkit/table_builder.h"

namespace pushpull {
namespace {

std::string MakeFile(absl::string_view input) {
  const uint8_t mode = TakeByte(&input) % 3;
  if (mode == 0) return std::string(input);
  if (mode == 1) return WrapTableBlock(input);
  const size_t part = TakeByte(&input);
  const absl::string_view data_block = TakeBytes(&input, input.size() * part / 256);
  return WrapTableBlocks(data_block, input);
}

void Run(absl::string_view input) {
  const std::string file = MakeFile(input);
  const absl::StatusOr<std::vector<TableEntry>> entries = ReadSortedTable(file, "fuzz");
  if (!entries.ok()) {
    CHECK(absl::IsDataLoss(entries.status()) || absl::IsUnimplemented(entries.status()));
    return;
  }
  for (size_t i = 1; i < entries->size(); ++i) CHECK((*entries)[i - 1].first < (*entries)[i].first);
  const absl::StatusOr<std::vector<TableEntry>> again =
      ReadSortedTable(WrapTableBlock(EncodeTableBlock(*entries)), "again");
  CHECK(again.ok()) << again.status();
  CHECK(*again == *entries);
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pushpull::Run(pushpull::AsText(data, size));
  return 0;
}

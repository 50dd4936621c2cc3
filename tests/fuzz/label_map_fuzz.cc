// The input is the text of a label map.
#include <string>

#include "tests/fuzz/fuzz_input.h"
#include "worker/data/label_map.h"

namespace pushpull {
namespace {

void Run(absl::string_view input) {
  const absl::StatusOr<LabelMap> map = LabelMap::Parse(input, "fuzz");
  if (!map.ok()) {
    CHECK(absl::IsInvalidArgument(map.status())) << map.status();
    return;
  }
  CHECK(map->num_classes() >= 1 && map->num_classes() <= LabelMap::kMaxId);
  for (int label = 0; label < map->num_classes(); ++label) {
    const std::string& name = map->name(label);
    CHECK(name.empty() || map->Find(name) == label) << name;
  }
  const std::string text = map->ToText();
  const absl::StatusOr<LabelMap> again = LabelMap::Parse(text, "again");
  CHECK(again.ok()) << again.status();
  CHECK(again->ToText() == text);
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pushpull::Run(pushpull::AsText(data, size));
  return 0;
}

// If the first byte is even, the rest is MANIFEST.json. If it is odd, the rest follows the first
// line of a manifest, which gets the correct digest.
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/sha256.h"
#include "common/checkpoint/manifest.h"
#include "tests/fuzz/fuzz_input.h"

namespace pushpull {
namespace {

void Run(absl::string_view input) {
  const bool whole = TakeByte(&input) % 2 == 0;
  const std::string text =
      whole ? std::string(input)
            : absl::StrCat("{\"manifest_sha256\":\"", Sha256Hex(input), "\",\n", input);
  const absl::StatusOr<CheckpointManifest> manifest = ParseManifest(text, "fuzz");
  if (!manifest.ok()) {
    CHECK(absl::IsDataLoss(manifest.status())) << manifest.status();
    return;
  }
  const std::string written = SerializeManifest(*manifest);
  const absl::StatusOr<CheckpointManifest> again = ParseManifest(written, "again");
  CHECK(again.ok()) << again.status();
  CHECK(SerializeManifest(*again) == written);
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pushpull::Run(pushpull::AsText(data, size));
  return 0;
}

// The input is the text of a pipeline config, as a worker gets it from the server.
#include <string>

#include "absl/status/status.h"

#include "common/config/pipeline_config.h"
#include "common/config/validate_config.h"
#include "common/model/model_layout.h"
#include "tests/fuzz/fuzz_input.h"

namespace pushpull {
namespace {

// Bounds the message about an unreadable text, however many problems it has.
constexpr size_t kMaxMessageBytes = 256 * 1024;

void Run(absl::string_view input) {
  const auto config = ParsePipelineConfig(std::string(input), "fuzz");
  if (!config.ok()) {
    CHECK(absl::IsInvalidArgument(config.status())) << config.status();
    CHECK_LT(config.status().message().size(), kMaxMessageBytes) << config.status();
    return;
  }
  const absl::Status valid = ValidatePipelineConfig(*config, {}).ToStatus("fuzz");
  if (valid.ok()) {
    BuildVariableLayout(*config);
  } else {
    CHECK(absl::IsInvalidArgument(valid)) << valid;
  }
  // Reading the effective config again must give the same effective config.
  const std::string text = EffectiveConfigText(*config);
  const auto again = ParsePipelineConfig(text, "again");
  CHECK(again.ok()) << again.status();
  CHECK(EffectiveConfigText(*again) == text);
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pushpull::Run(pushpull::AsText(data, size));
  return 0;
}

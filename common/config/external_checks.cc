#include "common/config/external_checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace pushpull {
namespace {

constexpr size_t kMaxNameBytes = 200;

// The clones read the data, so only the number of passes over them has a meaning for the server.
void CheckTrainReader(const config::InputReader& reader, FieldChecker* checker) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reader.GetReflection()->ListFields(reader, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->name() == "num_epochs") continue;
    checker->Add(absl::StrCat("train_input_reader.", field->name()),
                 "no such field with an external model", "one",
                 "the programs of the clones read the data: remove it");
  }
}

}  // namespace

void CheckExternal(const config::TrainEvalPipelineConfig& config, FieldChecker* checker) {
  const std::string& name = config.model().external().name();
  const bool has_control = std::any_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  if (name.size() > kMaxNameBytes || has_control) {
    checker->Add("model.external.name",
                 absl::StrCat("at most ", kMaxNameBytes, " bytes without control characters"),
                 has_control ? "a control character" : absl::StrCat(name.size(), " bytes"));
  }
  CheckTrainReader(config.train_input_reader(), checker);
  const config::TrainConfig& train = config.train_config();
  if (train.data_augmentation_options_size() > 0) {
    checker->Add("train_config.data_augmentation_options", "none with an external model",
                 absl::StrCat(train.data_augmentation_options_size()),
                 "the programs of the clones read the data: remove them");
  }
  if (!train.fine_tune_checkpoint().empty()) {
    checker->Add("train_config.fine_tune_checkpoint", "none with an external model",
                 absl::StrCat("\"", train.fine_tune_checkpoint(), "\""),
                 "training starts with the values that the first clone declares: remove it");
  }
  for (int i = 0; i < config.eval_input_reader_size(); ++i) {
    checker->Add(absl::StrCat("eval_input_reader[", i, "]"), "none with an external model", "one",
                 "the evaluator does not know the network: remove it");
  }
  if (config.has_eval_config()) {
    checker->Add("eval_config", "none with an external model", "one",
                 "the evaluator does not know the network: remove it");
  }
}

void RefuseExternal(const config::External& external, FieldChecker* checker) {
  checker->Add(
      "model", "ssd { ... } or classifier { ... }",
      absl::StrCat("external { name: \"", external.name(),
                   "\" }, which is a model that Pushpull does not implement"),
      "a program of the user's trains it with the client library; this program has to know the "
      "network");
}

}  // namespace pushpull

// Tested by tests/worker/export/onnx_model_test.cc.
// Tested by tests/worker/export/model_file_test.cc.
#include "worker/export/inference_model.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/trained_checkpoint.h"
#include "common/config/nearest_name.h"
#include "common/model/model_layout.h"
#include "common/model/statistic_correction.h"

namespace pushpull {
namespace {

// Returns the length of the longest common prefix or suffix. A misspelt name differs in the middle,
// and names of another model differ in their outermost scopes.
size_t SharedCharacters(absl::string_view a, absl::string_view b) {
  const auto begin = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto end = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return std::max(begin.first - a.begin(), end.first - a.rbegin());
}

// Returns a hint for an error message: the correct spelling if one is close, otherwise up to three
// of the most similar names.
std::string NearestNames(const std::string& name, std::vector<std::string> candidates) {
  if (candidates.empty()) return "; it has no variables at all";
  std::string one = DidYouMean(name, candidates);
  if (!one.empty()) return one;
  std::stable_sort(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    return SharedCharacters(name, a) > SharedCharacters(name, b);
  });
  candidates.resize(std::min<size_t>(candidates.size(), 3));
  return absl::StrCat("; the nearest names there are ", absl::StrJoin(candidates, ", "));
}

absl::Status CheckVariablesExist(const VariableLayout& layout, const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const VariableSpec& variable : checkpoint.manifest().variables) {
    names.push_back(variable.name);
  }
  const std::set<std::string> present(names.begin(), names.end());
  for (const VariableSpec& variable : layout.variables()) {
    if (present.count(variable.name) > 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint.path(), " lacks variable ", variable.name,
                     " of the model that pipeline.config describes",
                     NearestNames(variable.name, std::move(names))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const float> ValuesOf(const InferenceModel& model, absl::string_view variable) {
  const std::optional<int64_t> index = model.layout.Find(variable);
  CHECK(index.has_value()) << variable;
  return ValuesOf(model, static_cast<int>(*index));
}

absl::Span<const float> ValuesOf(const InferenceModel& model, int variable) {
  CHECK(variable >= 0 && variable < model.layout.num_variables()) << variable;
  return absl::MakeConstSpan(model.values)
      .subspan(model.layout.offset(variable), model.layout.num_elements(variable));
}

absl::StatusOr<InferenceModel> LoadInferenceModel(FileSystem& files,
                                                  const std::string& checkpoint_dir,
                                                  const config::TrainEvalPipelineConfig& config,
                                                  const InferenceModelOptions& options) {
  NetworkSpec network = BuildNetworkSpec(config.model());
  VariableLayout layout = BuildVariableLayout(config);
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                      OpenTrainedCheckpoint(files, checkpoint_dir, options.step, nullptr, config));
  PP_RETURN_IF_ERROR(CheckVariablesExist(layout, *checkpoint));
  const CheckpointManifest& manifest = checkpoint->manifest();
  if (options.use_moving_averages && !manifest.has_ema) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint->path(),
                     " has no moving averages: it was trained with use_moving_average: false; "
                     "export its raw weights"));
  }
  const ElementRange all = {0, layout.total_elements()};
  std::vector<float> values(all.size());
  PP_RETURN_IF_ERROR(options.use_moving_averages
                         ? checkpoint->ReadEma(layout, all, values.data())
                         : checkpoint->ReadWeights(layout, all, values.data()));
  for (const StatisticCorrection& correction :
       StatisticCorrections(network, static_cast<int64_t>(manifest.updates))) {
    const int variable = correction.variable;
    correction.Apply(
        absl::MakeSpan(values).subspan(layout.offset(variable), layout.num_elements(variable)));
  }
  return InferenceModel{std::move(network), std::move(layout),           std::move(values),
                        manifest.step,      options.use_moving_averages, manifest.run_id};
}

}  // namespace pushpull

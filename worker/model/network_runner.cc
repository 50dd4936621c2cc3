// Tested by tests/worker/model/device_runner_test.cc.
// Tested by tests/worker/model/network_test.cc.
#include "worker/model/network_runner.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"
#include "kernels/device.h"

namespace pushpull {
namespace {

absl::Status LabelError(int64_t sample, absl::string_view what, int32_t label, int num_classes) {
  return absl::InvalidArgumentError(absl::StrCat("sample ", sample, " of the batch has ", what,
                                                 label, ", expected 0 to ", num_classes - 1));
}

StepResult MakeStepResult(const NetworkSpec& spec, const ObjectiveResult& objective,
                          int64_t samples) {
  StepResult result;
  result.samples = samples;
  if (spec.detection.has_value()) {
    result.detection = objective.detection;
    result.components = {{"localization_loss", result.detection.localization_loss},
                         {"classification_loss", result.detection.classification_loss}};
    result.loss = result.detection.localization_loss + result.detection.classification_loss;
  } else {
    result.loss = objective.classification.loss;
    result.components = {{"classification_loss", result.loss}};
    result.correct_top1 = objective.classification.top1;
    result.correct_top5 = objective.classification.top5;
  }
  return result;
}

}  // namespace

absl::string_view PrecisionName(Precision precision) {
  return precision == Precision::kBfloat16 ? "bf16" : "fp32";
}

absl::StatusOr<Precision> ParsePrecision(absl::string_view name) {
  for (const Precision precision : {Precision::kFloat, Precision::kBfloat16}) {
    if (PrecisionName(precision) == name) return precision;
  }
  return absl::InvalidArgumentError("expected fp32 or bf16");
}

absl::Status CheckBatch(const RunnerOptions& options) {
  if (options.max_batch <= kMaxDeviceSamples) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: a batch of one process has up to %d samples, expected at most %d; lower it%s",
      options.training ? "train_config.batch_size" : "eval_config.batch_size", options.max_batch,
      kMaxDeviceSamples, options.training ? " or, in synchronous mode, use more clones" : ""));
}

ImageInput ImageInputOf(const NetworkSpec& spec) {
  ImageInput input = {};
  input.height = static_cast<int32_t>(spec.input.height);
  input.width = static_cast<int32_t>(spec.input.width);
  input.channels = static_cast<int32_t>(spec.input.channels);
  if (spec.keep_aspect_ratio.has_value()) {
    std::copy_n(spec.keep_aspect_ratio->pad_value.begin(), 3, input.padding);
  }
  return input;
}

template <typename T>
absl::Status BasicNetworkRunner<T>::CheckCall(absl::Span<const T> variables,
                                              const ImageBatch<T>& batch) const {
  if (static_cast<int64_t>(variables.size()) != total_elements_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "got ", variables.size(), " elements of variables, expected ", total_elements_));
  }
  if (batch.samples < 1 || batch.samples > options_.max_batch) {
    return absl::InvalidArgumentError(absl::StrCat("got a batch of ", batch.samples,
                                                   " samples, expected 1 to ", options_.max_batch));
  }
  if (options_.packed_images ? batch.packed_images.data == nullptr : batch.images == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the batch has no ", options_.packed_images ? "packed" : "float", " images"));
  }
  if (!options_.packed_images) return absl::OkStatus();
  if (batch.packed_images.bytes > ImageBlockBytes(options_.max_batch, spec_.input.num_elements())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the batch's packed images have ", batch.packed_images.bytes, " bytes, expected at most ",
        ImageBlockBytes(options_.max_batch, spec_.input.num_elements())));
  }
  return CheckPackedImages(image_input_, batch.samples, batch.packed_images);
}

template <typename T>
absl::Status BasicNetworkRunner<T>::CheckTargets(const ImageBatch<T>& batch) const {
  for (int64_t i = 0; i < batch.samples; ++i) {
    if (!spec_.detection.has_value()) {
      if (batch.labels[i] < 0 || batch.labels[i] >= spec_.num_classes) {
        return LabelError(i, "label ", batch.labels[i], spec_.num_classes);
      }
      continue;
    }
    for (const LabeledBox& object : batch.objects[i]) {
      if (object.label < 0 || object.label >= spec_.detection->num_classes) {
        return LabelError(i, "an object with label ", object.label, spec_.detection->num_classes);
      }
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<StepResult> BasicNetworkRunner<T>::ForwardBackward(
    absl::Span<const T> variables, const ImageBatch<T>& batch, uint64_t dropout_seed,
    absl::Span<T> gradient, StepUnderWay under_way, GradientReady ready) {
  if (!options_.training) {
    return absl::FailedPreconditionError("the network was built for inference only");
  }
  PP_RETURN_IF_ERROR(CheckCall(variables, batch));
  PP_RETURN_IF_ERROR(CheckTargets(batch));
  if (static_cast<int64_t>(gradient.size()) != total_elements_) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", gradient.size(), " elements of gradient, expected ", total_elements_));
  }
  PP_ASSIGN_OR_RETURN(const ObjectiveResult result, RunStep(variables.data(), batch, dropout_seed,
                                                            gradient.data(), under_way, ready));
  return MakeStepResult(spec_, result, batch.samples);
}

template <typename T>
void BasicNetworkRunner<T>::StageStep(absl::Span<const T> variables, const ImageBatch<T>& batch,
                                      uint64_t dropout_seed) {
  if (!options_.training || !CheckCall(variables, batch).ok() || !CheckTargets(batch).ok()) return;
  BeginStaged(variables.data(), batch, dropout_seed);
}

template <typename T>
absl::StatusOr<StepResult> BasicNetworkRunner<T>::Evaluate(absl::Span<const T> variables,
                                                           const ImageBatch<T>& batch,
                                                           int64_t num_updates) {
  PP_RETURN_IF_ERROR(CheckCall(variables, batch));
  PP_RETURN_IF_ERROR(CheckTargets(batch));
  PP_ASSIGN_OR_RETURN(const ObjectiveResult result,
                      RunEvaluation(variables.data(), batch, num_updates));
  return MakeStepResult(spec_, result, batch.samples);
}

template <typename T>
absl::Status BasicNetworkRunner<T>::Infer(absl::Span<const T> variables, const ImageBatch<T>& batch,
                                          int64_t num_updates) {
  PP_RETURN_IF_ERROR(CheckCall(variables, batch));
  return RunInference(variables.data(), batch, num_updates);
}

void FlatObjects::Assign(const absl::Span<const LabeledBox>* spans, int64_t samples) {
  objects.clear();
  first.assign(1, 0);
  for (int64_t s = 0; s < samples; ++s) {
    if (spans != nullptr) objects.insert(objects.end(), spans[s].begin(), spans[s].end());
    first.push_back(static_cast<int32_t>(objects.size()));
  }
}

template class BasicNetworkRunner<float>;
template class BasicNetworkRunner<double>;

}  // namespace pushpull

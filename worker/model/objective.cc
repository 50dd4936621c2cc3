#include "worker/model/objective.h"

#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/detection/ssd_anchors.h"
#include "worker/model/detection_outputs.h"

namespace pushpull {
namespace {

absl::Status LabelError(int64_t sample, absl::string_view what, int32_t label, int num_classes) {
  return absl::InvalidArgumentError(absl::StrCat("sample ", sample, " of the batch has ", what,
                                                 label, ", expected 0 to ", num_classes - 1));
}

template <typename T>
class ClassificationObjective final : public Objective<T> {
 public:
  ClassificationObjective(const NetworkSpec& spec, Operators<T>* operators)
      : spec_(spec), operators_(*operators) {}

  absl::Status CheckTargets(const ImageBatch<T>& batch) const override {
    for (int64_t i = 0; i < batch.samples; ++i) {
      if (batch.labels[i] < 0 || batch.labels[i] >= spec_.num_classes) {
        return LabelError(i, "label ", batch.labels[i], spec_.num_classes);
      }
    }
    return absl::OkStatus();
  }

  StepResult Run(const ImageBatch<T>& batch, absl::Span<const T* const> outputs,
                 absl::Span<T* const> doutputs) override {
    const bool training = !doutputs.empty();
    const ClassificationResult loss = operators_.SoftmaxCrossEntropy(
        batch.samples, spec_.num_classes, outputs[0], batch.labels,
        training ? spec_.label_smoothing : 0.0f, training ? doutputs[0] : nullptr);
    StepResult result;
    result.loss = loss.loss;
    result.components = {{"classification_loss", loss.loss}};
    result.correct_top1 = loss.top1;
    result.correct_top5 = loss.top5;
    result.samples = batch.samples;
    return result;
  }

 private:
  const NetworkSpec& spec_;
  Operators<T>& operators_;
};

template <typename T>
class DetectionObjective final : public Objective<T> {
 public:
  DetectionObjective(const DetectionSpec& spec, Operators<T>* operators)
      : spec_(spec),
        operators_(*operators),
        anchors_(GenerateSsdAnchors(spec.anchors, spec.heads)) {}

  absl::Status CheckTargets(const ImageBatch<T>& batch) const override {
    for (int64_t i = 0; i < batch.samples; ++i) {
      for (const LabeledBox& object : batch.objects[i]) {
        if (object.label < 0 || object.label >= spec_.num_classes) {
          return LabelError(i, "an object with label ", object.label, spec_.num_classes);
        }
      }
    }
    return absl::OkStatus();
  }

  StepResult Run(const ImageBatch<T>& batch, absl::Span<const T* const> outputs,
                 absl::Span<T* const> doutputs) override {
    const int64_t rows = batch.samples * spec_.num_anchors();
    codes_.resize(rows * kBoxCodeSize);
    scores_.resize(rows * (spec_.num_classes + 1));
    GatherDetectionOutputs(spec_, batch.samples, outputs, codes_.data(), scores_.data());
    SsdLossArguments<T> arguments;
    arguments.spec = &spec_;
    arguments.anchors = anchors_;
    arguments.objects = {batch.objects, static_cast<size_t>(batch.samples)};
    arguments.box_codes = codes_.data();
    arguments.class_scores = scores_.data();
    if (!doutputs.empty()) {
      dcodes_.resize(codes_.size());
      dscores_.resize(scores_.size());
      arguments.dbox_codes = dcodes_.data();
      arguments.dclass_scores = dscores_.data();
    }
    StepResult result;
    result.detection = operators_.SsdLoss(arguments);
    if (!doutputs.empty()) {
      ScatterDetectionGradients<T>(spec_, batch.samples, dcodes_.data(), dscores_.data(), doutputs);
    }
    result.components = {{"localization_loss", result.detection.localization_loss},
                         {"classification_loss", result.detection.classification_loss}};
    result.loss = result.detection.localization_loss + result.detection.classification_loss;
    result.samples = batch.samples;
    return result;
  }

 private:
  const DetectionSpec& spec_;
  Operators<T>& operators_;
  const std::vector<BoundingBox> anchors_;
  std::vector<T> codes_, scores_, dcodes_, dscores_;
};

}  // namespace

template <typename T>
std::unique_ptr<Objective<T>> MakeObjective(const NetworkSpec& spec, Operators<T>* operators) {
  if (spec.detection.has_value()) {
    return std::make_unique<DetectionObjective<T>>(*spec.detection, operators);
  }
  return std::make_unique<ClassificationObjective<T>>(spec, operators);
}

template std::unique_ptr<Objective<float>> MakeObjective(const NetworkSpec&, Operators<float>*);
template std::unique_ptr<Objective<double>> MakeObjective(const NetworkSpec&, Operators<double>*);

}  // namespace pushpull

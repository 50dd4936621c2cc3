// Tested by tests/worker/model/network_test.cc.
// Tested by tests/worker/model/network_golden_test.cc.
#include "worker/model/objective.h"

#include <utility>
#include <vector>

#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "kernels/detection/anchors.h"

namespace pushpull {
namespace {

template <typename T>
class ClassificationObjective final : public Objective<T> {
 public:
  ClassificationObjective(const NetworkSpec& spec, Operators<T>* operators)
      : spec_(spec), operators_(*operators) {}

  void Run(const NetworkBatch<T>& batch, absl::Span<const T* const> outputs,
           absl::Span<T* const> doutputs, const Workspace&, ObjectiveResult* result) override {
    const bool training = !doutputs.empty();
    operators_.SoftmaxCrossEntropy(batch.samples, spec_.num_classes, outputs[0], batch.labels,
                                   training ? spec_.label_smoothing : 0.0f,
                                   training ? doutputs[0] : nullptr, &result->classification);
  }

 private:
  const NetworkSpec& spec_;
  Operators<T>& operators_;
};

template <typename T>
class DetectionObjective final : public Objective<T> {
 public:
  // `anchors` holds the result of GenerateAnchors.
  DetectionObjective(const DetectionSpec& spec, Operators<T>* operators,
                     std::unique_ptr<Memory> anchors)
      : spec_(spec),
        operators_(*operators),
        anchors_(std::move(anchors)),
        heads_(spec.heads.size()) {}

  void Run(const NetworkBatch<T>& batch, absl::Span<const T* const> outputs,
           absl::Span<T* const> doutputs, const Workspace& workspace,
           ObjectiveResult* result) override {
    const bool training = !doutputs.empty();
    CHECK_EQ(outputs.size(), 2 * heads_.size());
    for (size_t h = 0; h < heads_.size(); ++h) {
      heads_[h] = {spec_.heads[h].num_anchors(), outputs[2 * h], outputs[2 * h + 1],
                   training ? doutputs[2 * h] : nullptr, training ? doutputs[2 * h + 1] : nullptr};
    }
    SsdLossArguments<T> arguments;
    arguments.spec = &spec_;
    arguments.samples = batch.samples;
    arguments.num_anchors = spec_.num_anchors();
    arguments.anchors = static_cast<const BoundingBox*>(anchors_->data());
    arguments.objects = batch.objects;
    arguments.first_object = batch.first_object;
    arguments.heads = heads_;
    arguments.wants_gradient = training;
    operators_.SsdLoss(arguments, &result->detection, workspace);
  }

 private:
  const DetectionSpec& spec_;
  Operators<T>& operators_;
  const std::unique_ptr<Memory> anchors_;
  std::vector<SsdHeadTensors<T>> heads_;
};

}  // namespace

template <typename T>
int64_t ObjectiveWorkspace(const NetworkSpec& spec, const Operators<T>& operators,
                           int64_t samples) {
  return spec.detection.has_value()
             ? operators.SsdLossWorkspace(samples, spec.detection->num_anchors())
             : 0;
}

int64_t ObjectiveMemory(const NetworkSpec& spec) {
  return spec.detection.has_value()
             ? spec.detection->num_anchors() * static_cast<int64_t>(sizeof(BoundingBox))
             : 0;
}

template <typename T>
absl::StatusOr<std::unique_ptr<Objective<T>>> MakeObjective(const NetworkSpec& spec,
                                                            Operators<T>* operators,
                                                            MemorySource* memory) {
  if (!spec.detection.has_value()) {
    return std::make_unique<ClassificationObjective<T>>(spec, operators);
  }
  const std::vector<BoundingBox> anchors =
      GenerateAnchors(spec.detection->anchors, spec.detection->heads);
  PP_ASSIGN_OR_RETURN(std::unique_ptr<Memory> block, memory->Allocate(ObjectiveMemory(spec)));
  memory->Write(block->data(), anchors.data(), ObjectiveMemory(spec));
  return std::make_unique<DetectionObjective<T>>(*spec.detection, operators, std::move(block));
}

#define PUSHPULL_OBJECTIVE(T)                                                            \
  template int64_t ObjectiveWorkspace(const NetworkSpec&, const Operators<T>&, int64_t); \
  template absl::StatusOr<std::unique_ptr<Objective<T>>> MakeObjective(                  \
      const NetworkSpec&, Operators<T>*, MemorySource*)
PUSHPULL_OBJECTIVE(float);
PUSHPULL_OBJECTIVE(double);
PUSHPULL_OBJECTIVE(Bfloat16);
#undef PUSHPULL_OBJECTIVE

}  // namespace pushpull

// Tested by tests/worker/model/network_test.cc.
#include "worker/model/host_runner.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/model/network.h"

namespace pushpull {
namespace {

template <typename T>
class HostRunner final : public BasicNetworkRunner<ParameterOf<T>> {
 public:
  using P = ParameterOf<T>;
  using GradientReady = typename BasicNetworkRunner<P>::GradientReady;
  using StepUnderWay = typename BasicNetworkRunner<P>::StepUnderWay;

  HostRunner(std::unique_ptr<Network<T>> network, Operators<T>* operators, int64_t total_elements,
             const RunnerOptions& options)
      : BasicNetworkRunner<P>(network->spec(), total_elements, options),
        network_(std::move(network)),
        operators_(*operators) {}

  absl::StatusOr<std::unique_ptr<Memory>> AllocateImages(int64_t bytes) override {
    return HostMemory()->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<Memory>> AllocateVector() override {
    return HostMemory()->Allocate(total_elements() * static_cast<int64_t>(sizeof(P)));
  }

  std::vector<const P*> outputs() const override {
    if constexpr (std::is_same_v<T, P>) {
      return network_->outputs();
    } else {
      std::vector<const P*> widened;
      for (const std::vector<P>& output : widened_outputs_) widened.push_back(output.data());
      return widened;
    }
  }
  int64_t arena_bytes() const override { return network_->arena_bytes(); }

 private:
  absl::StatusOr<ObjectiveResult> RunStep(const P* variables, const ImageBatch<P>& batch,
                                          uint64_t dropout_seed, P* gradient,
                                          StepUnderWay under_way, GradientReady ready) override {
    under_way();
    ObjectiveResult result;
    typename Network<T>::Step step;
    step.variables = variables;
    step.batch = WithTargets(batch);
    step.dropout_seed = &dropout_seed;
    step.gradient = gradient;
    step.result = &result;
    network_->BeginStep(step);
    network_->ContinueForward(total_elements());
    int64_t first = total_elements();
    do {
      first = network_->ContinueStep(1);
      ready(first);
    } while (first > 0);
    return result;
  }

  absl::Status RunInference(const P* variables, const ImageBatch<P>& batch,
                            int64_t num_updates) override {
    NetworkBatch<T> images;
    images.images = Images(batch);
    images.samples = batch.samples;
    network_->Infer(variables, images, num_updates);
    WidenOutputs(batch.samples);
    return absl::OkStatus();
  }

  absl::StatusOr<ObjectiveResult> RunEvaluation(const P* variables, const ImageBatch<P>& batch,
                                                int64_t num_updates) override {
    network_->Infer(variables, WithTargets(batch), num_updates);
    WidenOutputs(batch.samples);
    ObjectiveResult result;
    network_->Evaluate(&result);
    return result;
  }

  NetworkBatch<T> WithTargets(const ImageBatch<P>& batch) {
    objects_.Assign(batch.objects, batch.samples);
    return {Images(batch), batch.samples, batch.labels, objects_.objects.data(),
            objects_.first.data()};
  }

  // Returns the batch's images as the network reads them: the caller's own if they are of its type,
  // else a copy.
  const T* Images(const ImageBatch<P>& batch) {
    const int64_t size = batch.samples * this->spec().input.num_elements();
    if (this->options().packed_images) {
      images_.resize(size);
      operators_.SampleImages(this->image_input(), batch.samples, batch.packed_images.data,
                              images_.data());
      return images_.data();
    }
    if constexpr (std::is_same_v<T, P>) {
      return batch.images;
    } else {
      images_.resize(size);
      operators_.ConvertFromFloat(size, batch.images, images_.data());
      return images_.data();
    }
  }

  void WidenOutputs(int64_t samples) {
    if constexpr (!std::is_same_v<T, P>) {
      const std::vector<const T*> outputs = network_->outputs();
      const std::vector<int> nodes = OutputNodes(this->spec());
      widened_outputs_.resize(outputs.size());
      for (size_t i = 0; i < outputs.size(); ++i) {
        const int64_t size = samples * this->spec().nodes[nodes[i]].shape.num_elements();
        widened_outputs_[i].resize(size);
        operators_.ConvertToFloat(size, outputs[i], widened_outputs_[i].data());
      }
    }
  }

  using BasicNetworkRunner<P>::total_elements;

  const std::unique_ptr<Network<T>> network_;
  Operators<T>& operators_;
  FlatObjects objects_;
  std::vector<T> images_;
  std::vector<std::vector<P>> widened_outputs_;
};

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<BasicNetworkRunner<ParameterOf<T>>>> MakeHostRunner(
    const NetworkSpec& spec, const VariableLayout& layout, Operators<T>* operators,
    const RunnerOptions& options) {
  PP_RETURN_IF_ERROR(CheckBatch(options));
  NetworkOptions network_options;
  network_options.max_batch = options.max_batch;
  network_options.training = options.training;
  PP_ASSIGN_OR_RETURN(std::unique_ptr<Network<T>> network,
                      Network<T>::Create(spec, layout, operators, network_options));
  return std::make_unique<HostRunner<T>>(std::move(network), operators, layout.total_elements(),
                                         options);
}

#define PUSHPULL_INSTANTIATE(T)                                                                \
  template absl::StatusOr<std::unique_ptr<BasicNetworkRunner<ParameterOf<T>>>> MakeHostRunner( \
      const NetworkSpec&, const VariableLayout&, Operators<T>*, const RunnerOptions&)
PUSHPULL_INSTANTIATE(float);
PUSHPULL_INSTANTIATE(double);
PUSHPULL_INSTANTIATE(Bfloat16);
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull

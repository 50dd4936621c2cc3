// Tested by tests/worker/model/network_test.cc.
#include "worker/model/host_runner.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/model/network.h"

namespace pushpull {
namespace {

template <typename T>
class HostRunner final : public BasicNetworkRunner<T> {
 public:
  using GradientReady = typename BasicNetworkRunner<T>::GradientReady;
  using StepUnderWay = typename BasicNetworkRunner<T>::StepUnderWay;

  HostRunner(std::unique_ptr<Network<T>> network, Operators<T>* operators, int64_t total_elements,
             const RunnerOptions& options)
      : BasicNetworkRunner<T>(network->spec(), total_elements, options),
        network_(std::move(network)),
        operators_(*operators) {}

  absl::StatusOr<std::unique_ptr<Memory>> AllocateImages(int64_t bytes) override {
    return HostMemory()->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<Memory>> AllocateVector() override {
    return HostMemory()->Allocate(total_elements() * static_cast<int64_t>(sizeof(T)));
  }

  std::vector<const T*> outputs() const override { return network_->outputs(); }
  int64_t arena_bytes() const override { return network_->arena_bytes(); }

 private:
  absl::StatusOr<ObjectiveResult> RunStep(const T* variables, const ImageBatch<T>& batch,
                                          uint64_t dropout_seed, T* gradient,
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

  absl::Status RunInference(const T* variables, const ImageBatch<T>& batch,
                            int64_t num_updates) override {
    NetworkBatch<T> images;
    images.images = Images(batch);
    images.samples = batch.samples;
    network_->Infer(variables, images, num_updates);
    return absl::OkStatus();
  }

  absl::StatusOr<ObjectiveResult> RunEvaluation(const T* variables, const ImageBatch<T>& batch,
                                                int64_t num_updates) override {
    network_->Infer(variables, WithTargets(batch), num_updates);
    ObjectiveResult result;
    network_->Evaluate(&result);
    return result;
  }

  NetworkBatch<T> WithTargets(const ImageBatch<T>& batch) {
    objects_.Assign(batch.objects, batch.samples);
    return {Images(batch), batch.samples, batch.labels, objects_.objects.data(),
            objects_.first.data()};
  }

  const T* Images(const ImageBatch<T>& batch) {
    if (!this->options().packed_images) return batch.images;
    sampled_.resize(batch.samples * this->spec().input.num_elements());
    operators_.SampleImages(this->image_input(), batch.samples, batch.packed_images.data,
                            sampled_.data());
    return sampled_.data();
  }

  using BasicNetworkRunner<T>::total_elements;

  const std::unique_ptr<Network<T>> network_;
  Operators<T>& operators_;
  FlatObjects objects_;
  std::vector<T> sampled_;
};

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<BasicNetworkRunner<T>>> MakeHostRunner(
    const NetworkSpec& spec, const VariableLayout& layout, Operators<T>* operators,
    const RunnerOptions& options) {
  NetworkOptions network_options;
  network_options.max_batch = options.max_batch;
  network_options.training = options.training;
  PP_ASSIGN_OR_RETURN(std::unique_ptr<Network<T>> network,
                      Network<T>::Create(spec, layout, operators, network_options));
  return std::make_unique<HostRunner<T>>(std::move(network), operators, layout.total_elements(),
                                         options);
}

template absl::StatusOr<std::unique_ptr<BasicNetworkRunner<float>>> MakeHostRunner(
    const NetworkSpec&, const VariableLayout&, Operators<float>*, const RunnerOptions&);
template absl::StatusOr<std::unique_ptr<BasicNetworkRunner<double>>> MakeHostRunner(
    const NetworkSpec&, const VariableLayout&, Operators<double>*, const RunnerOptions&);

}  // namespace pushpull

// The operators of a training step of MobileNetV2 1.0, called in order on random data, for the
// kernel benchmark. Shapes and memory traffic are those of the real network (worker/model builds
// that one), but the results mean nothing.
#ifndef PUSHPULL_SCRIPTS_BENCH_MOBILENET_CHAIN_H_
#define PUSHPULL_SCRIPTS_BENCH_MOBILENET_CHAIN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/operators.h"

namespace pushpull {

class MobilenetChain {
 public:
  MobilenetChain(int64_t batch, int64_t size, int64_t classes, const Operators<float>& operators);

  // Runs one forward and backward pass.
  void Step(Operators<float>* operators);

 private:
  struct Layer {
    ConvolutionShape shape;
    bool depthwise = false;
    bool normalized = true;
    int skip_from = -1;  // the layer whose applied output is added to this layer's output
    int add_from = -1;  // backward: the layer whose dz is also added to this layer's input gradient
    std::vector<float> weights, y, dz, applied;
    std::vector<float> gamma, beta, mean, variance, dgamma, dbeta, dweights;
    BatchNorm<float> norm;
    Lazy<float> output;  // what the next layer reads
  };

  void AddLayer(const ConvolutionShape& shape, bool depthwise, FusedActivation activation,
                bool normalized);
  void AddBlock(int64_t expansion, int64_t out, int stride);
  void Forward(Operators<float>* operators);
  void Backward(Operators<float>* operators);
  Lazy<float> InputOf(size_t i) const;
  Shape OutputShape() const { return layers_.back()->shape.out(); }

  std::vector<float> image_, pooled_, dpooled_, dlogits_;
  std::vector<int32_t> labels_;
  std::vector<std::unique_ptr<Layer>> layers_;  // the classifier, after the pool, is the last layer
  std::vector<float> workspace_;
  Workspace view_;
};

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_MOBILENET_CHAIN_H_

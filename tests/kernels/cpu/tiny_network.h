// A network that is small enough for central differences and uses every operator: stem, inverted
// residual block (expand, depthwise, project, skip), head, pool, dropout, classifier and loss. Its
// batch norms couple all samples.
#ifndef PUSHPULL_TESTS_KERNELS_CPU_TINY_NETWORK_H_
#define PUSHPULL_TESTS_KERNELS_CPU_TINY_NETWORK_H_

#include <memory>
#include <string>
#include <vector>

#include "kernels/operators.h"
#include "tests/kernels/cpu/guarded.h"

namespace pushpull {

struct TinySpec {
  Shape image{3, 7, 6, 2};
  Padding stem_padding{0, 1, 0, 1};
  int stem_stride = 1;
  int stem_kernel = 3;
  int block_stride = 1;
  bool skip = true;  // needs block_stride 1
  Statistics statistics = Statistics::kBatch;
  FusedActivation activation = FusedActivation::kRelu6;
  double smoothing = 0.1;
  double dropout = 0.3;
};

template <typename T>
class TinyNetwork {
 public:
  explicit TinyNetwork(const TinySpec& spec);

  // Name and value of a parameter. The values may be changed between calls.
  struct Parameter {
    std::string name;
    std::vector<T> value;
    std::vector<T> gradient;  // of the last Backward()
  };
  std::vector<std::unique_ptr<Parameter>>& parameters() { return parameters_; }

  ClassificationResult Forward(Operators<T>* operators);
  void Backward(Operators<T>* operators);  // after Forward()

 private:
  struct Layer {
    ConvolutionShape shape;
    bool depthwise = false;
    Parameter *weights, *gamma, *beta;
    std::vector<T> y, dz, applied, mean, variance;
    BatchNorm<T> norm;
    Lazy<T> output;
  };

  Parameter* AddParameter(const std::string& name, int64_t size, double scale, double offset);
  void AddLayer(const std::string& name, const ConvolutionShape& shape, bool depthwise,
                FusedActivation activation);
  void RunLayer(Layer& layer, const Lazy<T>& x, Operators<T>* operators);
  void BackLayer(Layer& layer, const Lazy<T>& x, const InputGradient<T>& dx,
                 Operators<T>* operators);
  InputGradient<T> Into(Layer& layer, const T* add);

  const TinySpec spec_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Layer>> layers_;  // stem, expand, depthwise, project, head
  ConvolutionShape classifier_;
  Parameter *classifier_weights_, *classifier_bias_;
  std::vector<T> image_, pooled_, dropped_, logits_, dlogits_, dpooled_;
  std::vector<int32_t> labels_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_KERNELS_CPU_TINY_NETWORK_H_

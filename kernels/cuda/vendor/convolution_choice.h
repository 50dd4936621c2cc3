// Chooses how each convolution is computed: by our kernels, or by ours around a product of cuDNN or
// cuBLASLt (library_convolution.h). The first time that an operator comes with a new shape, all
// ways are tried on its operands. One whose results differ from ours is dropped, and the fastest of
// the others is used from then on. The choice is kept in a file (choice_file.h).
//
// The ways differ in the last bits. Runs that shall agree in all bits have to use the same file, or
// our kernels only.
#ifndef PUSHPULL_KERNELS_CUDA_VENDOR_CONVOLUTION_CHOICE_H_
#define PUSHPULL_KERNELS_CUDA_VENDOR_CONVOLUTION_CHOICE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/cuda/queue.h"
#include "kernels/cuda/vendor/choice_file.h"
#include "kernels/cuda/vendor/product.h"
#include "kernels/memory.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// Runs the work several times on the queue and returns the milliseconds of one run. The default
// measures by events of the device.
using Stopwatch = std::function<absl::StatusOr<double>(Queue*, absl::FunctionRef<absl::Status()>)>;
absl::StatusOr<double> MeasureByEvents(Queue* queue, absl::FunctionRef<absl::Status()> work);

// Allocates device memory, which is freed with the object. RESOURCE_EXHAUSTED: there is none. The
// default takes whatever the GPU has; a device counts what it hands out.
using TrialMemory = std::function<absl::StatusOr<std::unique_ptr<Memory>>(int64_t bytes)>;
absl::StatusOr<std::unique_ptr<Memory>> AllocateUncounted(int64_t bytes);

// What the choices of float and Bfloat16 share. It must outlive them.
struct ChoiceContext {
  std::vector<std::unique_ptr<ProductLibrary>> libraries;
  std::unique_ptr<ChoiceFile> file;
  // False: a library is used wherever it has a way, the fastest of its ways, and nothing is read
  // from the file or written to it.
  bool own_competes = true;
  int64_t product_workspace = int64_t{32} << 20;  // the most bytes of one product
  // Libraries are not asked if they would need more bytes of workspace than this. The plain tensors
  // of large maps with few channels are what our kernels are made to avoid.
  int64_t workspace_limit = int64_t{512} << 20;
  Stopwatch milliseconds = MeasureByEvents;
  TrialMemory allocate = AllocateUncounted;  // for the results of trials
};

// The convolutions of one queue. T is float or Bfloat16. Thread-compatible.
template <typename T>
class ConvolutionChoice {
 public:
  ConvolutionChoice(Queue* queue, ChoiceContext* context) : queue_(*queue), context_(*context) {}

  // As the functions of convolution.h. While the queue is being recorded nothing can be tried, so
  // an operator that is new then is computed by our kernels.
  int64_t WorkspaceBytes(const ConvolutionShape& shape) const;
  void Forward(const ConvolutionShape& shape, const Lazy<T>& x, const float* weights,
               const float* bias, T* y, const StatisticsOut<T>& statistics, void* workspace);
  void Backward(const ConvolutionShape& shape, const Lazy<T>& x, const float* weights,
                const OutputGradient<T>& dy, float* dweights, float* dbias,
                const InputGradient<T>& dx, void* workspace);

 private:
  struct Call;
  struct NamedProduct {
    std::string name;  // "cudnn/0"
    std::unique_ptr<Product> product;
  };
  // Null products: our kernel. The forward pass has the first one only; the backward pass has that
  // of the weights and that of the input.
  struct Way {
    std::string first_name = "own", second_name = "own";
    Product* first = nullptr;
    Product* second = nullptr;

    bool own() const { return first == nullptr && second == nullptr; }
  };
  struct Trial;

  bool MayUseLibraries(const ConvolutionShape& shape) const;
  // Runs the call in the way that was chosen for its key, which it chooses first if it is new.
  void RunChosen(const Call& call);
  // Returns the way that the file keeps for the key, or chooses one and adds it there.
  Way Decide(const Call& call, const std::string& key);
  // Tries all ways and returns the fastest one.
  absl::StatusOr<Way> Choose(const Call& call);
  std::vector<Way> WaysOf(const Call& call);
  Way WayOf(const Call& call, const std::string& first, const std::string& second);
  const std::vector<NamedProduct>& ProductsOf(ProductKind kind, const ConvolutionShape& shape);

  Queue& queue_;
  ChoiceContext& context_;
  std::map<std::string, Way> chosen_;                          // by key of the operator
  std::map<std::string, std::vector<NamedProduct>> products_;  // by kind and shape
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_VENDOR_CONVOLUTION_CHOICE_H_

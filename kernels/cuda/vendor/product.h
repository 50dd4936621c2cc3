// Products of plain tensors by a library of NVIDIA's: one of the three convolutions that a layer
// needs, without batch norm, activation, bias and statistics. library_convolution.h puts those
// around it.
#ifndef PUSHPULL_KERNELS_CUDA_VENDOR_PRODUCT_H_
#define PUSHPULL_KERNELS_CUDA_VENDOR_PRODUCT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/cuda/platform.h"
#include "kernels/shape.h"

namespace pushpull::PUSHPULL_CUDA {

// A convolution turns x[n, h, w, c] and w[taps, c, k] into y[n, out_h, out_w, k]. Its products are:
//   kForward          y = convolution(x, w)        from x and w
//   kInputGradient    dx, the gradient of x        from dy and w
//   kWeightGradient   dw, the gradient of w        from x and dy
enum class ProductKind { kForward, kInputGradient, kWeightGradient };

// x, y and their gradients are dense NHWC tensors of bfloat16 numbers, or of floats. So are the
// weights, which the caller packs in the order that the product asks for. Sums are in float.
struct ProductShape {
  ProductKind kind = ProductKind::kForward;
  ConvolutionShape convolution;  // in.c and out_channels are multiples of 8
  bool bfloat16 = false;         // else float, without rounding to TF32
};

// The order of the weights in memory: [taps][c][k], as the variables have it, or [k][taps][c].
enum class FilterOrder { kOutputsLast, kOutputsFirst };

class Product {
 public:
  virtual ~Product() = default;

  // Queues the product on the stream. `first` and `second` are the operands in the order that
  // ProductKind states, `workspace` has workspace_bytes(). All addresses are multiples of 16. The
  // bits of the result depend on the operands only. An error means that nothing has been queued.
  virtual absl::Status Queue(cudaStream_t stream, const void* first, const void* second, void* out,
                             void* workspace) = 0;

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // The order of the weights or, for kWeightGradient, of the result.
  FilterOrder filter_order() const { return filter_order_; }
  // kWeightGradient: the result is floats, whatever the type of the operands.
  bool float_result() const { return float_result_; }

 protected:
  Product(int64_t workspace_bytes, FilterOrder filter_order, bool float_result)
      : workspace_bytes_(workspace_bytes),
        filter_order_(filter_order),
        float_result_(float_result) {}

 private:
  const int64_t workspace_bytes_;
  const FilterOrder filter_order_;
  const bool float_result_;
};

// A loaded library, bound to the device that was current when it was opened. Thread-compatible. It
// must outlive its products.
class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;

  virtual std::string name() const = 0;     // "cudnn", "cublaslt"; without spaces
  virtual std::string version() const = 0;  // "9.26.0"

  // Returns at most `count` ways to compute the product whose results are deterministic and whose
  // workspaces have at most workspace_limit bytes, what the library expects to be fastest first.
  // The same library returns the same ways on the same kind of GPU. None: the library has no such
  // way. An error: it has failed; the message names the call.
  virtual absl::StatusOr<std::vector<std::unique_ptr<Product>>> FindProducts(
      const ProductShape& shape, int64_t workspace_limit, int count) = 0;
};

// Load cuDNN 9 and cuBLASLt. `name` is the file; the default is the version that this program
// knows.
//   NOT_FOUND: the library is not on this machine.
//   FAILED_PRECONDITION: it has another interface, or does not start.
absl::StatusOr<std::unique_ptr<ProductLibrary>> OpenCudnn(
    const std::string& name = "libcudnn.so.9");
absl::StatusOr<std::unique_ptr<ProductLibrary>> OpenCublasLt(
    const std::string& name = "libcublasLt.so.13");

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_VENDOR_PRODUCT_H_

// The libraries for tests: stand-ins with the emulated GPU; on a GPU, those of the machine.
#ifndef PUSHPULL_TESTS_KERNELS_CUDA_VENDOR_TEST_LIBRARIES_H_
#define PUSHPULL_TESTS_KERNELS_CUDA_VENDOR_TEST_LIBRARIES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "kernels/cuda/vendor/product.h"

namespace pushpull::PUSHPULL_CUDA {

inline std::string TestLibraryPath(const std::string& name) {
#ifdef PUSHPULL_CUDA_EMULATION
  return PUSHPULL_VENDOR_FAKES "/" + name;
#else
  return name;
#endif
}

inline absl::StatusOr<std::unique_ptr<ProductLibrary>> OpenTestCudnn() {
  return OpenCudnn(TestLibraryPath("libcudnn.so.9"));
}
inline absl::StatusOr<std::unique_ptr<ProductLibrary>> OpenTestCublasLt() {
  return OpenCublasLt(TestLibraryPath("libcublasLt.so.13"));
}

// Counts the products of a library that have been queued, and hands out only the one with this
// index, or all if it is negative.
class CountingLibrary final : public ProductLibrary {
 public:
  CountingLibrary(std::unique_ptr<ProductLibrary> library, int only, int* queued)
      : library_(std::move(library)), only_(only), queued_(queued) {}

  std::string name() const override { return library_->name(); }
  std::string version() const override { return library_->version(); }
  absl::StatusOr<std::vector<std::unique_ptr<Product>>> FindProducts(const ProductShape& shape,
                                                                     int64_t workspace_limit,
                                                                     int count) override {
    auto found = library_->FindProducts(shape, workspace_limit, count);
    if (!found.ok()) return found.status();
    std::vector<std::unique_ptr<Product>> counted;
    for (int i = 0; i < static_cast<int>(found->size()); ++i) {
      if (only_ >= 0 && i != only_) continue;
      counted.push_back(std::make_unique<CountedProduct>(std::move((*found)[i]), queued_));
    }
    return counted;
  }

 private:
  class CountedProduct final : public Product {
   public:
    CountedProduct(std::unique_ptr<Product> product, int* queued)
        : Product(product->workspace_bytes(), product->filter_order(), product->float_result()),
          product_(std::move(product)),
          queued_(queued) {}
    absl::Status Queue(cudaStream_t stream, const void* first, const void* second, void* out,
                       void* workspace) override {
      ++*queued_;
      return product_->Queue(stream, first, second, out, workspace);
    }

   private:
    const std::unique_ptr<Product> product_;
    int* const queued_;
  };

  const std::unique_ptr<ProductLibrary> library_;
  const int only_;
  int* const queued_;
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_TESTS_KERNELS_CUDA_VENDOR_TEST_LIBRARIES_H_

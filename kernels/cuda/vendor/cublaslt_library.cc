// Products by cuBLASLt, which multiplies matrices: those of pointwise convolutions.
// Tested by tests/kernels/cuda/emulation/vendor_library_test.cc.
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/dynamic_library.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/vendor/cublaslt_api.h"
#include "kernels/cuda/vendor/product.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

using cublaslt::Api;
using cublaslt::Description;

constexpr uint32_t kAlignment = 16;  // of all operands, in bytes

absl::StatusOr<Api> FindFunctions(const DynamicLibrary& library) {
  Api api;
  PP_RETURN_IF_ERROR(library.Find("cublasLtGetVersion", &api.get_version));
  PP_RETURN_IF_ERROR(library.Find("cublasLtGetStatusString", &api.get_status_string));
  PP_RETURN_IF_ERROR(library.Find("cublasLtCreate", &api.create));
  PP_RETURN_IF_ERROR(library.Find("cublasLtDestroy", &api.destroy));
  PP_RETURN_IF_ERROR(library.Find("cublasLtMatmulDescCreate", &api.product_create));
  PP_RETURN_IF_ERROR(library.Find("cublasLtMatmulDescDestroy", &api.product_destroy));
  PP_RETURN_IF_ERROR(library.Find("cublasLtMatmulDescSetAttribute", &api.product_set));
  PP_RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutCreate", &api.matrix_create));
  PP_RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutDestroy", &api.matrix_destroy));
  PP_RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutSetAttribute", &api.matrix_set));
  PP_RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceCreate", &api.preference_create));
  PP_RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceDestroy", &api.preference_destroy));
  PP_RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceSetAttribute", &api.preference_set));
  PP_RETURN_IF_ERROR(library.Find("cublasLtMatmulAlgoGetHeuristic", &api.find_algorithms));
  PP_RETURN_IF_ERROR(library.Find("cublasLtMatmul", &api.multiply));
  return api;
}

struct CublasLt {
  std::unique_ptr<DynamicLibrary> library;
  Api api;
  cublaslt::Handle handle = nullptr;

  ~CublasLt() {
    if (handle != nullptr) api.destroy(handle);
  }
  absl::Status Check(int status, const char* call) const {
    if (status == cublaslt::kSuccess) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("cuBLASLt: ", call, ": ", api.get_status_string(status)));
  }
};

// The descriptions of one product D = op(A) op(B), all matrices row by row.
class Descriptions {
 public:
  explicit Descriptions(const CublasLt* lt) : lt_(lt) {}
  Descriptions(const Descriptions&) = delete;
  Descriptions& operator=(const Descriptions&) = delete;
  ~Descriptions() {
    if (product != nullptr) lt_->api.product_destroy(product);
    for (const Description matrix : {a, b, d}) {
      if (matrix != nullptr) lt_->api.matrix_destroy(matrix);
    }
  }

  absl::Status Describe(const ProductShape& shape);

  Description product = nullptr, a = nullptr, b = nullptr, d = nullptr;

 private:
  absl::Status Matrix(cublaslt::DataType type, int64_t rows, int64_t columns, Description* matrix) {
    PP_RETURN_IF_ERROR(lt_->Check(lt_->api.matrix_create(matrix, type, rows, columns, columns),
                                  "MatrixLayoutCreate"));
    return lt_->Check(lt_->api.matrix_set(*matrix, cublaslt::kOrder, &cublaslt::kRowMajor,
                                          sizeof(cublaslt::kRowMajor)),
                      "MatrixLayoutSetAttribute");
  }

  const CublasLt* const lt_;
};

// With x[pixels, c], w[c, k] and y[pixels, k]: y = x w, dx = dy w', dw = x' dy.
absl::Status Descriptions::Describe(const ProductShape& shape) {
  const int64_t pixels = shape.convolution.in.rows(), c = shape.convolution.in.c,
                k = shape.convolution.out_channels;
  const auto type = shape.bfloat16 ? cublaslt::kBfloat16 : cublaslt::kFloat;
  const cublaslt::Transposition transpose_a =
      shape.kind == ProductKind::kWeightGradient ? cublaslt::kTransposed : cublaslt::kNotTransposed;
  const cublaslt::Transposition transpose_b =
      shape.kind == ProductKind::kInputGradient ? cublaslt::kTransposed : cublaslt::kNotTransposed;
  PP_RETURN_IF_ERROR(
      lt_->Check(lt_->api.product_create(&product, cublaslt::kComputeFloat, cublaslt::kFloat),
                 "MatmulDescCreate"));
  PP_RETURN_IF_ERROR(lt_->Check(
      lt_->api.product_set(product, cublaslt::kTransposeA, &transpose_a, sizeof(transpose_a)),
      "MatmulDescSetAttribute"));
  PP_RETURN_IF_ERROR(lt_->Check(
      lt_->api.product_set(product, cublaslt::kTransposeB, &transpose_b, sizeof(transpose_b)),
      "MatmulDescSetAttribute"));
  switch (shape.kind) {
    case ProductKind::kForward:
      PP_RETURN_IF_ERROR(Matrix(type, pixels, c, &a));
      PP_RETURN_IF_ERROR(Matrix(type, c, k, &b));
      return Matrix(type, pixels, k, &d);
    case ProductKind::kInputGradient:
      PP_RETURN_IF_ERROR(Matrix(type, pixels, k, &a));
      PP_RETURN_IF_ERROR(Matrix(type, c, k, &b));
      return Matrix(type, pixels, c, &d);
    default:
      PP_RETURN_IF_ERROR(Matrix(type, pixels, c, &a));
      PP_RETURN_IF_ERROR(Matrix(type, pixels, k, &b));
      return Matrix(cublaslt::kFloat, c, k, &d);
  }
}

class CublasLtProduct final : public Product {
 public:
  CublasLtProduct(std::shared_ptr<const CublasLt> lt, std::shared_ptr<const Descriptions> of,
                  const cublaslt::HeuristicResult& chosen)
      : Product(static_cast<int64_t>(chosen.workspace_bytes), FilterOrder::kOutputsLast,
                /*float_result=*/true),
        lt_(std::move(lt)),
        of_(std::move(of)),
        algorithm_(chosen.algorithm) {}

  absl::Status Queue(cudaStream_t stream, const void* first, const void* second, void* out,
                     void* workspace) override {
    const float one = 1.0f, zero = 0.0f;
    return lt_->Check(lt_->api.multiply(lt_->handle, of_->product, &one, first, of_->a, second,
                                        of_->b, &zero, out, of_->d, out, of_->d, &algorithm_,
                                        workspace, static_cast<size_t>(workspace_bytes()), stream),
                      "Matmul");
  }

 private:
  const std::shared_ptr<const CublasLt> lt_;  // outlives of_
  const std::shared_ptr<const Descriptions> of_;
  const cublaslt::Algorithm algorithm_;
};

class CublasLtLibrary final : public ProductLibrary {
 public:
  explicit CublasLtLibrary(std::shared_ptr<const CublasLt> lt) : lt_(std::move(lt)) {}

  std::string name() const override { return "cublaslt"; }
  std::string version() const override {
    const size_t version = lt_->api.get_version();
    return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  }

  // NVIDIA promises that a product has the same bits each time, with all algorithms of cuBLASLt,
  // on GPUs of the same kind.
  absl::StatusOr<std::vector<std::unique_ptr<Product>>> FindProducts(const ProductShape& shape,
                                                                     int64_t workspace_limit,
                                                                     int count) override {
    std::vector<std::unique_ptr<Product>> products;
    const ConvolutionShape& convolution = shape.convolution;
    if (convolution.kernel != 1 || convolution.stride != 1 || convolution.padding != Padding{}) {
      return products;
    }
    auto descriptions = std::make_shared<Descriptions>(lt_.get());
    PP_RETURN_IF_ERROR(descriptions->Describe(shape));
    std::vector<cublaslt::HeuristicResult> results(count);
    int found = 0;
    PP_RETURN_IF_ERROR(FindAlgorithms(*descriptions, workspace_limit, &results, &found));
    for (int i = 0; i < found; ++i) {
      if (results[i].state != cublaslt::kSuccess) continue;
      if (static_cast<int64_t>(results[i].workspace_bytes) > workspace_limit) continue;
      products.push_back(std::make_unique<CublasLtProduct>(lt_, descriptions, results[i]));
    }
    return products;
  }

 private:
  absl::Status FindAlgorithms(const Descriptions& of, int64_t workspace_limit,
                              std::vector<cublaslt::HeuristicResult>* results, int* found) const {
    Description preference = nullptr;
    PP_RETURN_IF_ERROR(
        lt_->Check(lt_->api.preference_create(&preference), "MatmulPreferenceCreate"));
    int status = SetPreferences(preference, workspace_limit);
    if (status == cublaslt::kSuccess) {
      status = lt_->api.find_algorithms(lt_->handle, of.product, of.a, of.b, of.d, of.d, preference,
                                        static_cast<int>(results->size()), results->data(), found);
    }
    lt_->api.preference_destroy(preference);
    if (status == cublaslt::kNotSupported) *found = 0;
    return status == cublaslt::kNotSupported ? absl::OkStatus()
                                             : lt_->Check(status, "MatmulAlgoGetHeuristic");
  }

  // Returns the first status that is not success.
  int SetPreferences(Description preference, int64_t workspace_limit) const {
    const auto limit = static_cast<uint64_t>(workspace_limit);
    int status =
        lt_->api.preference_set(preference, cublaslt::kMaxWorkspaceBytes, &limit, sizeof(limit));
    for (const auto which : {cublaslt::kMinAlignmentA, cublaslt::kMinAlignmentB,
                             cublaslt::kMinAlignmentC, cublaslt::kMinAlignmentD}) {
      if (status != cublaslt::kSuccess) return status;
      status = lt_->api.preference_set(preference, which, &kAlignment, sizeof(kAlignment));
    }
    return status;
  }

  const std::shared_ptr<const CublasLt> lt_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProductLibrary>> OpenCublasLt(const std::string& name) {
  auto lt = std::make_shared<CublasLt>();
  PP_ASSIGN_OR_RETURN(lt->library, DynamicLibrary::Open(name));
  PP_ASSIGN_OR_RETURN(lt->api, FindFunctions(*lt->library));
  const int status = lt->api.create(&lt->handle);
  if (status != cublaslt::kSuccess) {
    lt->handle = nullptr;
    return absl::FailedPreconditionError(
        absl::StrCat(name, " does not start: ", lt->api.get_status_string(status)));
  }
  return std::make_unique<CublasLtLibrary>(std::move(lt));
}

}  // namespace pushpull::PUSHPULL_CUDA

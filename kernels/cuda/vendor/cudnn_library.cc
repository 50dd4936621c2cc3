// Products by cuDNN's graph interface: a graph of one convolution, of which cuDNN lists engines.
// Tested by tests/kernels/cuda/emulation/vendor_library_test.cc.
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/dynamic_library.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/vendor/cudnn_api.h"
#include "kernels/cuda/vendor/product.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

using cudnn::Api;

// cuDNN lists the engines that it expects to be fastest first; most of the list is not worth
// trying.
constexpr int kMaxEngines = 16;
constexpr int64_t kAlignment = 16;  // of tensors, in bytes; enough for the widest loads

// Names of tensors within a graph, which are arbitrary.
constexpr int64_t kFirstId = 1, kSecondId = 2, kResultId = 3;

absl::StatusOr<Api> FindFunctions(const DynamicLibrary& library) {
  Api api;
  PP_RETURN_IF_ERROR(library.Find("cudnnGetVersion", &api.get_version));
  PP_RETURN_IF_ERROR(library.Find("cudnnGetErrorString", &api.get_error_string));
  PP_RETURN_IF_ERROR(library.Find("cudnnCreate", &api.create));
  PP_RETURN_IF_ERROR(library.Find("cudnnDestroy", &api.destroy));
  PP_RETURN_IF_ERROR(library.Find("cudnnSetStream", &api.set_stream));
  PP_RETURN_IF_ERROR(library.Find("cudnnBackendCreateDescriptor", &api.create_descriptor));
  PP_RETURN_IF_ERROR(library.Find("cudnnBackendDestroyDescriptor", &api.destroy_descriptor));
  PP_RETURN_IF_ERROR(library.Find("cudnnBackendFinalize", &api.finalize));
  PP_RETURN_IF_ERROR(library.Find("cudnnBackendSetAttribute", &api.set_attribute));
  PP_RETURN_IF_ERROR(library.Find("cudnnBackendGetAttribute", &api.get_attribute));
  PP_RETURN_IF_ERROR(library.Find("cudnnBackendExecute", &api.execute));
  return api;
}

// A library that is loaded and started. Products keep it.
struct Cudnn {
  std::unique_ptr<DynamicLibrary> library;
  Api api;
  cudnn::Handle handle = nullptr;

  ~Cudnn() {
    if (handle != nullptr) api.destroy(handle);
  }
  absl::Status Check(int status, const char* call) const {
    if (status == cudnn::kSuccess) return absl::OkStatus();
    const std::string text = absl::StrCat("cuDNN: ", call, ": ", api.get_error_string(status));
    return cudnn::IsNotSupported(status) ? absl::UnimplementedError(text)
                                         : absl::InternalError(text);
  }
};

// Owns a descriptor and collects the first error of the calls that describe it.
class Described {
 public:
  Described(const Cudnn* cudnn, cudnn::DescriptorType type) : cudnn_(cudnn) {
    status_ = cudnn->Check(cudnn->api.create_descriptor(type, &descriptor_), "CreateDescriptor");
  }
  Described(Described&& other) noexcept
      : cudnn_(other.cudnn_),
        descriptor_(std::exchange(other.descriptor_, nullptr)),
        status_(std::move(other.status_)) {}
  Described& operator=(Described&&) = delete;
  ~Described() {
    if (descriptor_ != nullptr) cudnn_->api.destroy_descriptor(descriptor_);
  }

  cudnn::Descriptor get() const { return descriptor_; }
  const absl::Status& status() const { return status_; }

  void Set(cudnn::AttributeName name, cudnn::AttributeType type, int64_t count,
           const void* values) {
    if (!status_.ok()) return;
    status_ = cudnn_->Check(cudnn_->api.set_attribute(descriptor_, name, type, count, values),
                            "SetAttribute");
  }
  void SetInts(cudnn::AttributeName name, absl::Span<const int64_t> values) {
    Set(name, cudnn::kTypeInt64, static_cast<int64_t>(values.size()), values.data());
  }
  void SetInt(cudnn::AttributeName name, int64_t value) { SetInts(name, {value}); }
  void SetFloat(cudnn::AttributeName name, float value) { Set(name, cudnn::kTypeFloat, 1, &value); }
  void SetDescriptor(cudnn::AttributeName name, const Described& value) {
    if (status_.ok()) status_ = value.status();
    Set(name, cudnn::kTypeDescriptor, 1, &value.descriptor_);
  }
  // Ends the description.
  void Finish() {
    if (status_.ok()) status_ = cudnn_->Check(cudnn_->api.finalize(descriptor_), "Finalize");
  }
  // Reads at most `most` values, and returns their number, or 0 after an error.
  int64_t Get(cudnn::AttributeName name, cudnn::AttributeType type, int64_t most, void* values) {
    int64_t count = 0;
    if (!status_.ok()) return 0;
    status_ = cudnn_->Check(
        cudnn_->api.get_attribute(descriptor_, name, type, most, &count, values), "GetAttribute");
    return status_.ok() ? std::min(count, most) : 0;
  }

 private:
  const Cudnn* cudnn_;
  cudnn::Descriptor descriptor_ = nullptr;
  absl::Status status_;
};

// A tensor with dimensions n, channels, height and width, whose channels lie side by side.
Described Tensor(const Cudnn* cudnn, int64_t id, cudnn::DataType type, const Shape& shape) {
  Described tensor(cudnn, cudnn::kTensor);
  tensor.Set(cudnn::kTensorDataType, cudnn::kTypeDataType, 1, &type);
  tensor.SetInts(cudnn::kTensorDimensions, {shape.n, shape.c, shape.h, shape.w});
  tensor.SetInts(cudnn::kTensorStrides,
                 {shape.h * shape.w * shape.c, 1, shape.w * shape.c, shape.c});
  tensor.SetInt(cudnn::kTensorUniqueId, id);
  tensor.SetInt(cudnn::kTensorAlignment, kAlignment);
  tensor.Finish();
  return tensor;
}

// The plan of one engine for one product.
class CudnnProduct final : public Product {
 public:
  CudnnProduct(std::shared_ptr<const Cudnn> cudnn, Described config, Described plan,
               int64_t workspace_bytes, bool float_result)
      : Product(workspace_bytes, FilterOrder::kOutputsFirst, float_result),
        cudnn_(std::move(cudnn)),
        config_(std::move(config)),
        plan_(std::move(plan)) {}

  absl::Status Queue(cudaStream_t stream, const void* first, const void* second, void* out,
                     void* workspace) override {
    PP_RETURN_IF_ERROR(cudnn_->Check(cudnn_->api.set_stream(cudnn_->handle, stream), "SetStream"));
    Described pack(cudnn_.get(), cudnn::kVariantPack);
    const std::array<const void*, 3> pointers = {first, second, out};
    pack.SetInts(cudnn::kVariantPackIds, {kFirstId, kSecondId, kResultId});
    pack.Set(cudnn::kVariantPackPointers, cudnn::kTypeVoidPointer, 3, pointers.data());
    pack.Set(cudnn::kVariantPackWorkspace, cudnn::kTypeVoidPointer, 1, &workspace);
    pack.Finish();
    PP_RETURN_IF_ERROR(pack.status());
    return cudnn_->Check(cudnn_->api.execute(cudnn_->handle, plan_.get(), pack.get()), "Execute");
  }

 private:
  const std::shared_ptr<const Cudnn> cudnn_;  // outlives the descriptors
  const Described config_;                    // which plan_ refers to
  const Described plan_;
};

class CudnnLibrary final : public ProductLibrary {
 public:
  explicit CudnnLibrary(std::shared_ptr<const Cudnn> cudnn) : cudnn_(std::move(cudnn)) {}

  std::string name() const override { return "cudnn"; }
  std::string version() const override {
    const size_t version = cudnn_->api.get_version();
    return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  }

  absl::StatusOr<std::vector<std::unique_ptr<Product>>> FindProducts(const ProductShape& shape,
                                                                     int64_t workspace_limit,
                                                                     int count) override {
    std::vector<std::unique_ptr<Product>> products;
    // Gradients of weights are wanted in float; not every version has such engines.
    const bool float_result = shape.kind == ProductKind::kWeightGradient;
    PP_RETURN_IF_ERROR(AddProducts(shape, float_result, workspace_limit, count, &products));
    if (products.empty() && float_result && shape.bfloat16) {
      PP_RETURN_IF_ERROR(AddProducts(shape, false, workspace_limit, count, &products));
    }
    return products;
  }

 private:
  Described Convolution(const ConvolutionShape& shape) const {
    Described convolution(cudnn_.get(), cudnn::kConvolution);
    const cudnn::DataType type = cudnn::kFloat;
    const Padding& padding = shape.padding;
    convolution.SetInt(cudnn::kConvolutionSpatialDimensions, 2);
    convolution.Set(cudnn::kConvolutionComputeType, cudnn::kTypeDataType, 1, &type);
    convolution.Set(cudnn::kConvolutionMode, cudnn::kTypeConvolutionMode, 1,
                    &cudnn::kCrossCorrelation);
    convolution.SetInts(cudnn::kConvolutionDilations, {1, 1});
    convolution.SetInts(cudnn::kConvolutionStrides, {shape.stride, shape.stride});
    convolution.SetInts(cudnn::kConvolutionPrePaddings, {padding.top, padding.left});
    convolution.SetInts(cudnn::kConvolutionPostPaddings, {padding.bottom, padding.right});
    convolution.Finish();
    return convolution;
  }

  Described Operation(const ProductShape& product, bool float_result) const {
    const ConvolutionShape& shape = product.convolution;
    const cudnn::DataType type = product.bfloat16 ? cudnn::kBfloat16 : cudnn::kFloat;
    const Shape filter = {shape.out_channels, shape.kernel, shape.kernel, shape.in.c};
    const auto tensor = [&](int64_t id, cudnn::DataType of, const Shape& dimensions) {
      return Tensor(cudnn_.get(), id, of, dimensions);
    };
    const Described convolution = Convolution(shape);
    // Fills in an operation whose attributes are called as stated.
    const auto operation = [&](cudnn::DescriptorType which, cudnn::AttributeName alpha,
                               cudnn::AttributeName beta, cudnn::AttributeName of,
                               std::array<cudnn::AttributeName, 3> names,
                               const std::array<Described, 3>& tensors) {
      Described result(cudnn_.get(), which);
      result.SetFloat(alpha, 1.0f);
      result.SetFloat(beta, 0.0f);
      result.SetDescriptor(of, convolution);
      for (int i = 0; i < 3; ++i) result.SetDescriptor(names[i], tensors[i]);
      result.Finish();
      return result;
    };
    switch (product.kind) {
      case ProductKind::kForward:
        return operation(cudnn::kConvolutionForward, cudnn::kForwardAlpha, cudnn::kForwardBeta,
                         cudnn::kForwardConvolution,
                         {cudnn::kForwardX, cudnn::kForwardW, cudnn::kForwardY},
                         {tensor(kFirstId, type, shape.in), tensor(kSecondId, type, filter),
                          tensor(kResultId, type, shape.out())});
      case ProductKind::kInputGradient:
        return operation(cudnn::kConvolutionBackwardData, cudnn::kBackwardDataAlpha,
                         cudnn::kBackwardDataBeta, cudnn::kBackwardDataConvolution,
                         {cudnn::kBackwardDataDy, cudnn::kBackwardDataW, cudnn::kBackwardDataDx},
                         {tensor(kFirstId, type, shape.out()), tensor(kSecondId, type, filter),
                          tensor(kResultId, type, shape.in)});
      default:
        return operation(
            cudnn::kConvolutionBackwardFilter, cudnn::kBackwardFilterAlpha,
            cudnn::kBackwardFilterBeta, cudnn::kBackwardFilterConvolution,
            {cudnn::kBackwardFilterX, cudnn::kBackwardFilterDy, cudnn::kBackwardFilterDw},
            {tensor(kFirstId, type, shape.in), tensor(kSecondId, type, shape.out()),
             tensor(kResultId, float_result ? cudnn::kFloat : type, filter)});
    }
  }

  // Whether the results of an engine are deterministic and as exact as ours.
  static bool Accepts(absl::Span<const int> notes, bool bfloat16) {
    for (const int note : notes) {
      switch (note) {
        case cudnn::kNondeterministic:
        case cudnn::kReducedPrecisionReduction:
        case cudnn::kFft:
        case cudnn::kWinograd:
        case cudnn::kWinogradTile4:
        case cudnn::kWinogradTile6:
        case cudnn::kWinogradTile13:
        case cudnn::kDownConvertsInputs:
          return false;
        case cudnn::kTensorCore:
          if (!bfloat16) return false;  // rounds floats to TF32
          break;
        default:
          break;
      }
    }
    return true;
  }

  // The plan of an engine; nullopt if it cannot be used.
  std::optional<Described> PlanOf(Described* config, bool bfloat16, int64_t workspace_limit,
                                  int64_t* workspace_bytes) const {
    Described engine(cudnn_.get(), cudnn::kEngine);
    cudnn::Descriptor engines[1] = {engine.get()};
    config->Get(cudnn::kEngineConfigEngine, cudnn::kTypeDescriptor, 1, engines);
    if (!config->status().ok()) return std::nullopt;
    std::array<int, cudnn::kMaxNumericalNotes> notes = {};
    const int64_t known = engine.Get(cudnn::kEngineNumericalNotes, cudnn::kTypeNumericalNote,
                                     cudnn::kMaxNumericalNotes, notes.data());
    if (!engine.status().ok() || !Accepts(absl::MakeConstSpan(notes).subspan(0, known), bfloat16)) {
      return std::nullopt;
    }
    Described plan(cudnn_.get(), cudnn::kExecutionPlan);
    plan.Set(cudnn::kPlanHandle, cudnn::kTypeHandle, 1, &cudnn_->handle);
    plan.SetDescriptor(cudnn::kPlanEngineConfig, *config);
    plan.Finish();
    plan.Get(cudnn::kPlanWorkspaceSize, cudnn::kTypeInt64, 1, workspace_bytes);
    if (!plan.status().ok() || *workspace_bytes > workspace_limit) return std::nullopt;
    return plan;
  }

  absl::Status AddProducts(const ProductShape& shape, bool float_result, int64_t workspace_limit,
                           int count, std::vector<std::unique_ptr<Product>>* products) const {
    const Described operation = Operation(shape, float_result);
    Described graph(cudnn_.get(), cudnn::kOperationGraph);
    graph.Set(cudnn::kGraphHandle, cudnn::kTypeHandle, 1, &cudnn_->handle);
    graph.SetDescriptor(cudnn::kGraphOperations, operation);
    graph.Finish();
    Described heuristics(cudnn_.get(), cudnn::kEngineHeuristics);
    heuristics.SetDescriptor(cudnn::kHeuristicsGraph, graph);
    const int mode = cudnn::kHeuristicsModeA;
    heuristics.Set(cudnn::kHeuristicsMode, cudnn::kTypeHeuristicsMode, 1, &mode);
    heuristics.Finish();
    std::vector<Described> configs;
    std::array<cudnn::Descriptor, kMaxEngines> addresses = {};
    for (cudnn::Descriptor& address : addresses) {
      configs.emplace_back(cudnn_.get(), cudnn::kEngineConfig);
      PP_RETURN_IF_ERROR(configs.back().status());
      address = configs.back().get();
    }
    const int64_t found = heuristics.Get(cudnn::kHeuristicsResults, cudnn::kTypeDescriptor,
                                         kMaxEngines, addresses.data());
    if (absl::IsUnimplemented(heuristics.status())) return absl::OkStatus();
    PP_RETURN_IF_ERROR(heuristics.status());
    for (int64_t i = 0; i < found && static_cast<int>(products->size()) < count; ++i) {
      int64_t workspace_bytes = 0;
      std::optional<Described> plan =
          PlanOf(&configs[i], shape.bfloat16, workspace_limit, &workspace_bytes);
      if (!plan.has_value()) continue;
      products->push_back(std::make_unique<CudnnProduct>(cudnn_, std::move(configs[i]),
                                                         *std::move(plan), workspace_bytes,
                                                         float_result || !shape.bfloat16));
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const Cudnn> cudnn_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProductLibrary>> OpenCudnn(const std::string& name) {
  auto cudnn = std::make_shared<Cudnn>();
  PP_ASSIGN_OR_RETURN(cudnn->library, DynamicLibrary::Open(name));
  PP_ASSIGN_OR_RETURN(cudnn->api, FindFunctions(*cudnn->library));
  const size_t version = cudnn->api.get_version();
  if (version / 10000 != 9) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is version ", version, " of cuDNN, expected 9"));
  }
  const int status = cudnn->api.create(&cudnn->handle);
  if (status != cudnn::kSuccess) {
    cudnn->handle = nullptr;
    return absl::FailedPreconditionError(
        absl::StrCat(name, " does not start: ", cudnn->api.get_error_string(status)));
  }
  return std::make_unique<CudnnLibrary>(std::move(cudnn));
}

}  // namespace pushpull::PUSHPULL_CUDA

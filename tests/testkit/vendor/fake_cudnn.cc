// Stands for libcudnn.so.9 on a machine without a GPU: the part of the backend interface that the
// project calls, for programs with the emulated GPU. It checks what it is given as cuDNN would
// (types, missing attributes, descriptors that are not finished) and computes convolutions by the
// definition, by way of the tensors' strides. For each convolution it lists five engines:
//
//   0  not deterministic          3  tensor cores (TF32 for floats), no workspace
//   1  with a terabyte of workspace   4  plain, with a workspace that it fills
//   2  refused when its plan is made
//
// FAKE_CUDNN in the environment makes it behave otherwise: old (another version), no_create,
// no_engines, no_float_result (bfloat16 has no gradients of weights in float), execute_fails,
// wrong_result.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/vendor/cudnn_api.h"
#include "tests/testkit/vendor/fake_numbers.h"

namespace {

using namespace pushpull::cudnn;  // NOLINT(google-build-using-namespace)
using pushpull::fakes::IsSet;

constexpr int kBadParameter = 2000, kNotFinalized = 2004, kExecutionFailed = 5000,
              kUnsupported = 3000, kNotInitialized = 1001;
constexpr int kEngines = 5;
constexpr size_t kWorkspaceOfEngine4 = 1000;

struct Attribute {
  int type = 0;
  int64_t count = 0;
  std::vector<unsigned char> bytes;
};

struct FakeDescriptor {
  int type = 0;
  bool finished = false;
  bool destroyed = false;
  int engine = -1;  // of an engine, its configuration and its plan
  std::map<int, Attribute> attributes;

  const Attribute* Find(int name) const {
    const auto found = attributes.find(name);
    return found == attributes.end() ? nullptr : &found->second;
  }
  bool Has(int name, int type_of, int64_t count) const {
    const Attribute* const found = Find(name);
    return found != nullptr && found->type == type_of && found->count == count;
  }
  template <typename Value>
  Value Get(int name, int64_t index = 0) const {
    Value value;
    std::memcpy(&value, Find(name)->bytes.data() + index * static_cast<int64_t>(sizeof(Value)),
                sizeof(Value));
    return value;
  }
  const FakeDescriptor& Of(int name) const {
    return *static_cast<const FakeDescriptor*>(Get<Descriptor>(name));
  }
  // Whether the attribute is a finished descriptor of this type.
  bool Refers(int name, int type_of) const {
    return Has(name, kTypeDescriptor, 1) && Of(name).type == type_of && Of(name).finished &&
           !Of(name).destroyed;
  }
};

// All descriptors ever made. They stay until the library is unloaded, because a plan may refer to
// the graph that it was made for after the caller has destroyed that.
std::vector<std::unique_ptr<FakeDescriptor>>& AllDescriptors() {
  static std::vector<std::unique_ptr<FakeDescriptor>> all;
  return all;
}

struct FakeHandle {
  Stream stream = nullptr;
};

size_t SizeOf(int type) {
  switch (type) {
    case kTypeHandle:
    case kTypeInt64:
    case kTypeVoidPointer:
    case kTypeDescriptor:
      return 8;
    case kTypeBoolean:
      return 1;
    default:
      return 4;
  }
}

// The names of an operation's attributes: convolution, alpha, beta, and its three tensors.
struct OperationNames {
  int convolution, alpha, beta;
  std::array<int, 3> tensors;  // in the order x (or dx), w (or dw), y (or dy)
};

const OperationNames* NamesOf(int type) {
  static const OperationNames kForward = {
      kForwardConvolution, kForwardAlpha, kForwardBeta, {kForwardX, kForwardW, kForwardY}};
  static const OperationNames kData = {kBackwardDataConvolution,
                                       kBackwardDataAlpha,
                                       kBackwardDataBeta,
                                       {kBackwardDataDx, kBackwardDataW, kBackwardDataDy}};
  static const OperationNames kFilter = {kBackwardFilterConvolution,
                                         kBackwardFilterAlpha,
                                         kBackwardFilterBeta,
                                         {kBackwardFilterX, kBackwardFilterDw, kBackwardFilterDy}};
  if (type == kConvolutionForward) return &kForward;
  if (type == kConvolutionBackwardData) return &kData;
  if (type == kConvolutionBackwardFilter) return &kFilter;
  return nullptr;
}

bool IsWholeOperation(const FakeDescriptor& operation) {
  const OperationNames& names = *NamesOf(operation.type);
  if (!operation.Refers(names.convolution, kConvolution)) return false;
  if (!operation.Has(names.alpha, kTypeFloat, 1) || !operation.Has(names.beta, kTypeFloat, 1)) {
    return false;
  }
  for (const int tensor : names.tensors) {
    if (!operation.Refers(tensor, kTensor)) return false;
  }
  const FakeDescriptor &convolution = operation.Of(names.convolution),
                       &x = operation.Of(names.tensors[0]), &w = operation.Of(names.tensors[1]),
                       &y = operation.Of(names.tensors[2]);
  const auto dimension = [](const FakeDescriptor& tensor, int i) {
    return tensor.Get<int64_t>(kTensorDimensions, i);
  };
  bool fits = dimension(x, 0) == dimension(y, 0) && dimension(x, 1) == dimension(w, 1) &&
              dimension(w, 0) == dimension(y, 1);
  for (int i = 0; i < 2; ++i) {
    const int64_t padded = dimension(x, 2 + i) +
                           convolution.Get<int64_t>(kConvolutionPrePaddings, i) +
                           convolution.Get<int64_t>(kConvolutionPostPaddings, i);
    const int64_t stride = convolution.Get<int64_t>(kConvolutionStrides, i);
    fits = fits && (padded - dimension(w, 2 + i)) / stride + 1 == dimension(y, 2 + i);
  }
  return fits;
}

bool IsWhole(const FakeDescriptor& d) {
  switch (d.type) {
    case kTensor:
      return d.Has(kTensorDataType, kTypeDataType, 1) && d.Has(kTensorDimensions, kTypeInt64, 4) &&
             d.Has(kTensorStrides, kTypeInt64, 4) && d.Has(kTensorUniqueId, kTypeInt64, 1) &&
             d.Has(kTensorAlignment, kTypeInt64, 1);
    case kConvolution:
      return d.Has(kConvolutionSpatialDimensions, kTypeInt64, 1) &&
             d.Has(kConvolutionComputeType, kTypeDataType, 1) &&
             d.Get<int>(kConvolutionComputeType) == kFloat &&
             d.Has(kConvolutionMode, kTypeConvolutionMode, 1) &&
             d.Get<int>(kConvolutionMode) == kCrossCorrelation &&
             d.Has(kConvolutionDilations, kTypeInt64, 2) &&
             d.Has(kConvolutionStrides, kTypeInt64, 2) &&
             d.Has(kConvolutionPrePaddings, kTypeInt64, 2) &&
             d.Has(kConvolutionPostPaddings, kTypeInt64, 2);
    case kOperationGraph:
      return d.Has(kGraphHandle, kTypeHandle, 1) && d.Has(kGraphOperations, kTypeDescriptor, 1) &&
             d.Of(kGraphOperations).finished;
    case kEngineHeuristics:
      return d.Refers(kHeuristicsGraph, kOperationGraph) &&
             d.Has(kHeuristicsMode, kTypeHeuristicsMode, 1);
    case kExecutionPlan:
      return d.Has(kPlanHandle, kTypeHandle, 1) && d.Has(kPlanEngineConfig, kTypeDescriptor, 1) &&
             d.Of(kPlanEngineConfig).engine >= 0;
    case kVariantPack:
      return d.Has(kVariantPackIds, kTypeInt64, 3) &&
             d.Has(kVariantPackPointers, kTypeVoidPointer, 3) &&
             d.Has(kVariantPackWorkspace, kTypeVoidPointer, 1);
    default:
      return NamesOf(d.type) != nullptr && IsWholeOperation(d);
  }
}

// A tensor at an address, read and written by its strides.
struct View {
  void* base = nullptr;
  bool bfloat16 = false;
  std::array<int64_t, 4> dimensions, strides;

  View(const FakeDescriptor& tensor, const FakeDescriptor& pack)
      : bfloat16(tensor.Get<int>(kTensorDataType) == kBfloat16) {
    for (int i = 0; i < 4; ++i) {
      dimensions[i] = tensor.Get<int64_t>(kTensorDimensions, i);
      strides[i] = tensor.Get<int64_t>(kTensorStrides, i);
    }
    for (int i = 0; i < 3; ++i) {
      if (pack.Get<int64_t>(kVariantPackIds, i) != tensor.Get<int64_t>(kTensorUniqueId)) continue;
      base = pack.Get<void*>(kVariantPackPointers, i);
    }
  }
  bool valid(int64_t alignment) const {
    return base != nullptr && reinterpret_cast<uintptr_t>(base) % alignment == 0;
  }
  int64_t Index(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
  }
  float Load(int64_t index) const { return pushpull::fakes::LoadNumber(base, index, bfloat16); }
  void Store(int64_t index, float value) const {
    pushpull::fakes::StoreNumber(base, index, bfloat16, value);
  }
};

struct Work {
  int type = 0;  // of the operation
  View x, w, y;
  int64_t stride[2], padding[2];
  void* workspace = nullptr;
  bool wrong = false;
};

// Adds up every product of one x, one w and one y, into the one of the three that is the result.
void Compute(const Work& work) {
  const View &x = work.x, &w = work.w, &y = work.y;
  const View& result = work.type == kConvolutionForward        ? y
                       : work.type == kConvolutionBackwardData ? x
                                                               : w;
  const auto size = [](const View& view) {
    int64_t last = 1;
    for (int i = 0; i < 4; ++i) last += (view.dimensions[i] - 1) * view.strides[i];
    return last;
  };
  std::vector<double> sums(size(result), 0.0);
  for (int64_t n = 0; n < y.dimensions[0]; ++n) {
    for (int64_t oh = 0; oh < y.dimensions[2]; ++oh) {
      for (int64_t ow = 0; ow < y.dimensions[3]; ++ow) {
        for (int64_t r = 0; r < w.dimensions[2]; ++r) {
          for (int64_t s = 0; s < w.dimensions[3]; ++s) {
            const int64_t h = oh * work.stride[0] + r - work.padding[0];
            const int64_t v = ow * work.stride[1] + s - work.padding[1];
            if (h < 0 || h >= x.dimensions[2] || v < 0 || v >= x.dimensions[3]) continue;
            for (int64_t k = 0; k < w.dimensions[0]; ++k) {
              const int64_t iy = y.Index(n, k, oh, ow);
              for (int64_t c = 0; c < w.dimensions[1]; ++c) {
                const int64_t ix = x.Index(n, c, h, v), iw = w.Index(k, c, r, s);
                if (work.type == kConvolutionForward) {
                  sums[iy] += double{x.Load(ix)} * w.Load(iw);
                } else if (work.type == kConvolutionBackwardData) {
                  sums[ix] += double{y.Load(iy)} * w.Load(iw);
                } else {
                  sums[iw] += double{x.Load(ix)} * y.Load(iy);
                }
              }
            }
          }
        }
      }
    }
  }
  if (work.wrong) {
    for (double& sum : sums) sum += 1000.0;
  }
  for (size_t i = 0; i < sums.size(); ++i) result.Store(i, static_cast<float>(sums[i]));
}

int EngineOfResult(const FakeDescriptor& graph) {
  if (IsSet("FAKE_CUDNN", "no_engines")) return 0;
  const FakeDescriptor& operation = graph.Of(kGraphOperations);
  const OperationNames& names = *NamesOf(operation.type);
  const int x_type = operation.Of(names.tensors[0]).Get<int>(kTensorDataType);
  const int w_type = operation.Of(names.tensors[1]).Get<int>(kTensorDataType);
  const bool mixed = x_type != w_type;
  if (mixed && operation.type != kConvolutionBackwardFilter) return 0;
  if (mixed && IsSet("FAKE_CUDNN", "no_float_result")) return 0;
  return kEngines;
}

template <typename Value>
int Answer(const std::vector<Value>& values, int64_t wanted, int64_t* count, void* array) {
  *count = static_cast<int64_t>(values.size());
  std::copy_n(values.begin(), std::min<size_t>(values.size(), static_cast<size_t>(wanted)),
              static_cast<Value*>(array));
  return kSuccess;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return IsSet("FAKE_CUDNN", "old") ? 8905 : 92600; }

const char* cudnnGetErrorString(int status) {
  return status == kUnsupported ? "FAKE_NOT_SUPPORTED" : "FAKE_ERROR";
}

int cudnnCreate(Handle* handle) {
  if (IsSet("FAKE_CUDNN", "no_create")) return kNotInitialized;
  *handle = new FakeHandle;
  return kSuccess;
}
int cudnnDestroy(Handle handle) {
  delete static_cast<FakeHandle*>(handle);
  return kSuccess;
}
int cudnnSetStream(Handle handle, Stream stream) {
  static_cast<FakeHandle*>(handle)->stream = stream;
  return kSuccess;
}

int cudnnBackendCreateDescriptor(int type, Descriptor* descriptor) {
  AllDescriptors().push_back(std::make_unique<FakeDescriptor>());
  AllDescriptors().back()->type = type;
  *descriptor = AllDescriptors().back().get();
  return kSuccess;
}
int cudnnBackendDestroyDescriptor(Descriptor descriptor) {
  auto* const fake = static_cast<FakeDescriptor*>(descriptor);
  if (fake->destroyed) return kBadParameter;
  fake->destroyed = true;
  return kSuccess;
}

int cudnnBackendSetAttribute(Descriptor descriptor, int name, int type, int64_t count,
                             const void* array) {
  auto* const fake = static_cast<FakeDescriptor*>(descriptor);
  if (fake->finished || array == nullptr || count < 1) return kBadParameter;
  Attribute& attribute = fake->attributes[name];
  attribute.type = type;
  attribute.count = count;
  const auto* const bytes = static_cast<const unsigned char*>(array);
  attribute.bytes.assign(bytes, bytes + count * static_cast<int64_t>(SizeOf(type)));
  return kSuccess;
}

int cudnnBackendFinalize(Descriptor descriptor) {
  auto* const fake = static_cast<FakeDescriptor*>(descriptor);
  if (!IsWhole(*fake)) return kBadParameter;
  if (fake->type == kExecutionPlan) {
    fake->engine = fake->Of(kPlanEngineConfig).engine;
    if (fake->engine == 2) return kUnsupported;
    fake->attributes[kGraphOperations] =
        fake->Of(kPlanEngineConfig).attributes.at(kGraphOperations);
  }
  fake->finished = true;
  return kSuccess;
}

int cudnnBackendGetAttribute(Descriptor descriptor, int name, int type, int64_t wanted,
                             int64_t* count, void* array) {
  auto* const fake = static_cast<FakeDescriptor*>(descriptor);
  if (name == kHeuristicsResults && type == kTypeDescriptor) {
    if (!fake->finished) return kNotFinalized;
    const FakeDescriptor& graph = fake->Of(kHeuristicsGraph);
    *count = EngineOfResult(graph);
    // The caller has made the descriptors, and cuDNN fills them in.
    for (int64_t i = 0; i < std::min(*count, wanted); ++i) {
      auto* const config = static_cast<FakeDescriptor*>(static_cast<Descriptor*>(array)[i]);
      if (config->type != kEngineConfig) return kBadParameter;
      config->engine = static_cast<int>(i);
      config->attributes[kGraphOperations] = graph.attributes.at(kGraphOperations);
      config->finished = true;
    }
    return kSuccess;
  }
  if (name == kEngineConfigEngine && type == kTypeDescriptor) {
    auto* const engine = static_cast<FakeDescriptor*>(static_cast<Descriptor*>(array)[0]);
    if (engine->type != kEngine) return kBadParameter;
    engine->engine = fake->engine;
    engine->finished = true;
    *count = 1;
    return kSuccess;
  }
  if (name == kEngineNumericalNotes && type == kTypeNumericalNote) {
    std::vector<int> notes;
    if (fake->engine == 0) notes = {kNondeterministic};
    if (fake->engine == 3) notes = {kTensorCore};
    return Answer(notes, wanted, count, array);
  }
  if (name == kPlanWorkspaceSize && type == kTypeInt64) {
    const int64_t bytes = fake->engine == 1   ? int64_t{1} << 40
                          : fake->engine == 4 ? int64_t{kWorkspaceOfEngine4}
                                              : 0;
    return Answer(std::vector<int64_t>{bytes}, wanted, count, array);
  }
  return kBadParameter;
}

int cudnnBackendExecute(Handle handle, Descriptor plan_descriptor, Descriptor pack_descriptor) {
  const auto& plan = *static_cast<FakeDescriptor*>(plan_descriptor);
  const auto& pack = *static_cast<FakeDescriptor*>(pack_descriptor);
  if (!plan.finished || !pack.finished) return kNotFinalized;
  if (plan.destroyed || pack.destroyed || plan.Of(kPlanEngineConfig).destroyed) {
    return kBadParameter;
  }
  if (IsSet("FAKE_CUDNN", "execute_fails")) return kExecutionFailed;
  const FakeDescriptor& operation = plan.Of(kGraphOperations);
  const OperationNames& names = *NamesOf(operation.type);
  const FakeDescriptor& convolution = operation.Of(names.convolution);
  const FakeDescriptor& x = operation.Of(names.tensors[0]);
  Work work = {operation.type,
               View(x, pack),
               View(operation.Of(names.tensors[1]), pack),
               View(operation.Of(names.tensors[2]), pack),
               {},
               {},
               pack.Get<void*>(kVariantPackWorkspace),
               IsSet("FAKE_CUDNN", "wrong_result")};
  const int64_t alignment = x.Get<int64_t>(kTensorAlignment);
  if (!work.x.valid(alignment) || !work.w.valid(alignment) || !work.y.valid(alignment)) {
    return kBadParameter;
  }
  for (int i = 0; i < 2; ++i) {
    work.stride[i] = convolution.Get<int64_t>(kConvolutionStrides, i);
    work.padding[i] = convolution.Get<int64_t>(kConvolutionPrePaddings, i);
  }
  const size_t workspace = plan.engine == 4 ? kWorkspaceOfEngine4 : 0;
  pushpull::fakes::EnqueueOn(static_cast<FakeHandle*>(handle)->stream, [work, workspace] {
    if (workspace > 0) std::memset(work.workspace, 0xa5, workspace);
    Compute(work);
  });
  return kSuccess;
}

}  // extern "C"

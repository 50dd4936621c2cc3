// Tested by tests/kernels/cuda/emulation/convolution_choice_test.cc.
#include "kernels/cuda/vendor/convolution_choice.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "kernels/cuda/convolution.h"
#include "kernels/cuda/vendor/library_convolution.h"
#include "kernels/cuda/vendor/product_operands.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int kProductsPerLibrary = 2;
// A library has to be this much faster than our kernels, so that noise does not decide.
constexpr double kClearlyFaster = 0.97;
// The largest difference from our results, relative to the largest of them. Both round the operands
// alike; the library also rounds the gradient of the value before the activation.
template <typename T>
constexpr float kLargestDifference = std::is_same_v<T, float> ? 1e-3f : 3e-2f;

// Device memory that is freed with the object.
class Scratch {
 public:
  Scratch(Queue* queue, const TrialMemory* allocate) : queue_(*queue), allocate_(*allocate) {}

  // Returns room for `size` numbers, or null if there is no memory for it.
  template <typename Number>
  Number* Take(int64_t size) {
    if (!queue_.Enter() || !status_.ok()) return nullptr;
    auto block = allocate_(std::max<int64_t>(size, 1) * static_cast<int64_t>(sizeof(Number)));
    status_ = block.status();
    if (!status_.ok()) return nullptr;
    blocks_.push_back(*std::move(block));
    return static_cast<Number*>(blocks_.back()->data());
  }
  // OK, or the first error of Take.
  const absl::Status& status() const { return status_; }

 private:
  Queue& queue_;
  const TrialMemory& allocate_;
  std::vector<std::unique_ptr<Memory>> blocks_;
  absl::Status status_;
};

class UncountedMemory final : public Memory {
 public:
  UncountedMemory(void* data, int64_t bytes) : Memory(data, bytes) {}
  ~UncountedMemory() override { cudaFree(data()); }
};

std::string ShapeText(const ConvolutionShape& shape) {
  const Padding& p = shape.padding;
  return absl::StrFormat("%dx%dx%dx%d->%d k%d s%d p%d,%d,%d,%d", shape.in.n, shape.in.h, shape.in.w,
                         shape.in.c, shape.out_channels, shape.kernel, shape.stride, p.top,
                         p.bottom, p.left, p.right);
}

template <typename T>
constexpr const char* kTypeName = std::is_same_v<T, float> ? "fp32" : "bf16";

// What has to be computed to read x.
template <typename T>
std::string ValueText(const Lazy<T>& x) {
  if (x.applied != nullptr) return "applied";
  return absl::StrCat(x.batch_norm != nullptr ? "norm" : "raw", static_cast<int>(x.activation),
                      x.skip != nullptr ? "+skip" : "");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Memory>> AllocateUncounted(int64_t bytes) {
  void* block = nullptr;
  if (cudaMalloc(&block, static_cast<size_t>(bytes)) != cudaSuccess) {
    cudaGetLastError();  // clears the error, which the next launch would report as its own
    return absl::ResourceExhaustedError(absl::StrCat("the GPU has no ", bytes, " bytes"));
  }
  return std::make_unique<UncountedMemory>(block, bytes);
}

absl::StatusOr<double> MeasureByEvents(Queue* queue, absl::FunctionRef<absl::Status()> work) {
  constexpr int kRepeats = 3, kRuns = 4;
  constexpr double kLongEnough = 20.0;  // milliseconds: noise matters little then
  double best = 0.0;
  cudaEvent_t begin = nullptr, end = nullptr;
  if (!queue->Enter()) return absl::AbortedError("the GPU has failed");
  queue->Note(cudaEventCreateWithFlags(&begin, cudaEventBlockingSync), "event");
  queue->Note(cudaEventCreateWithFlags(&end, cudaEventBlockingSync), "event");
  absl::Status status = work();  // the first run loads kernels
  for (int repeat = 0; repeat < kRepeats && status.ok() && queue->error == cudaSuccess; ++repeat) {
    float milliseconds = 0.0f;
    queue->Note(cudaEventRecord(begin, queue->stream), "event");
    for (int run = 0; run < kRuns && status.ok(); ++run) status = work();
    queue->Note(cudaEventRecord(end, queue->stream), "event");
    queue->Note(cudaEventSynchronize(end), "timing");
    queue->Note(cudaEventElapsedTime(&milliseconds, begin, end), "timing");
    const double one = milliseconds / static_cast<double>(kRuns);
    best = repeat == 0 ? one : std::min(best, one);
    if (milliseconds > kLongEnough) break;
  }
  if (begin != nullptr) cudaEventDestroy(begin);
  if (end != nullptr) cudaEventDestroy(end);
  PP_RETURN_IF_ERROR(status);
  if (queue->error != cudaSuccess) return absl::AbortedError("the GPU has failed");
  return best;
}

// One call of an operator. `dy` null: the forward pass.
template <typename T>
struct ConvolutionChoice<T>::Call {
  const ConvolutionShape& shape;
  const Lazy<T>& x;
  const float* weights;
  void* workspace;
  // Forward.
  const float* bias = nullptr;
  T* y = nullptr;
  StatisticsOut<T> statistics = {};
  // Backward.
  const OutputGradient<T>* dy = nullptr;
  float* dweights = nullptr;
  float* dbias = nullptr;
  InputGradient<T> dx = {};

  bool forward() const { return dy == nullptr; }
  bool input_gradient() const { return dx.dz != nullptr; }

  std::string Key() const {
    const std::string begin = absl::StrCat(forward() ? "forward " : "backward ", kTypeName<T>, " ",
                                           ShapeText(shape), " from ", ValueText(x));
    if (forward()) {
      return absl::StrCat(begin, bias != nullptr ? " bias" : "",
                          statistics.mean != nullptr ? " statistics" : "");
    }
    std::string norm;
    if (dy->batch_norm != nullptr) {
      norm = dy->batch_norm->statistics == Statistics::kFrozen ? " frozen norm" : " norm";
    }
    return absl::StrCat(begin, norm, dbias != nullptr ? " bias" : "",
                        input_gradient() ? " input" : "", dx.add != nullptr ? " add" : "");
  }

  absl::Status Run(Queue* queue, const Way& way) const {
    if (forward()) {
      if (!way.own()) {
        return LibraryForward(queue, shape, x, weights, bias, y, statistics, way.first, workspace);
      }
      ConvolutionForward(queue, shape, x, weights, bias, y, statistics, workspace);
      return absl::OkStatus();
    }
    if (!way.own()) {
      return LibraryBackward(queue, shape, x, weights, *dy, dweights, dbias, dx,
                             {way.first, way.second}, workspace);
    }
    ConvolutionBackward(queue, shape, x, weights, *dy, dweights, dbias, dx, workspace);
    return absl::OkStatus();
  }
};

// A call whose outputs are in memory of its own, so that it can be repeated: its dx.add may be the
// same tensor as dx.dz.
template <typename T>
struct ConvolutionChoice<T>::Trial {
  Call call;

  Trial(const Call& original, Scratch* scratch) : call(original) {
    const ConvolutionShape& shape = call.shape;
    if (call.forward()) {
      call.y = scratch->Take<T>(shape.out().size());
      if (call.statistics.mean != nullptr) {
        call.statistics = {scratch->Take<float>(shape.out_channels),
                           scratch->Take<float>(shape.out_channels)};
      }
      return;
    }
    call.dweights = scratch->Take<float>(shape.dense_weights());
    if (call.dbias != nullptr) call.dbias = scratch->Take<float>(shape.out_channels);
    if (call.dx.dz == nullptr) return;
    call.dx.dz = scratch->Take<T>(shape.in.size());
    if (call.dx.dbeta != nullptr) call.dx.dbeta = scratch->Take<float>(shape.in.c);
    if (call.dx.dgamma != nullptr) call.dx.dgamma = scratch->Take<float>(shape.in.c);
  }

  // Returns the largest difference of the results, relative to the largest of `expected`.
  static float Difference(Queue* queue, const Trial& expected, const Trial& actual, float* place) {
    const Call &a = expected.call, &b = actual.call;
    if (a.forward()) return Read(queue, a.shape.out().size(), a.y, b.y, place);
    float difference = Read(queue, a.shape.dense_weights(), a.dweights, b.dweights, place);
    if (a.dx.dz != nullptr) {
      difference = std::max(difference, Read(queue, a.shape.in.size(), a.dx.dz, b.dx.dz, place));
    }
    return difference;
  }

 private:
  template <typename Number>
  static float Read(Queue* queue, int64_t size, const Number* expected, const Number* actual,
                    float* place) {
    float read[2] = {0.0f, 0.0f};
    LargestDifference(queue, size, expected, actual, place);
    if (!queue->Enter()) return 0.0f;
    queue->Note(cudaMemcpyAsync(read, place, sizeof(read), cudaMemcpyDeviceToHost, queue->stream),
                "comparison");
    queue->Note(cudaStreamSynchronize(queue->stream), "comparison");
    return read[0] == 0.0f ? 0.0f : read[0] / read[1];
  }
};

template <typename T>
bool ConvolutionChoice<T>::MayUseLibraries(const ConvolutionShape& shape) const {
  return !context_.libraries.empty() && shape.in.c % 8 == 0 && shape.in.size() > 0 &&
         LibraryWorkspaceBytes<T>(queue_, shape, context_.product_workspace) <=
             context_.workspace_limit;
}

template <typename T>
int64_t ConvolutionChoice<T>::WorkspaceBytes(const ConvolutionShape& shape) const {
  const int64_t own = ConvolutionWorkspaceBytes<T>(queue_, shape);
  if (!MayUseLibraries(shape)) return own;
  return std::max(own, LibraryWorkspaceBytes<T>(queue_, shape, context_.product_workspace));
}

template <typename T>
const std::vector<typename ConvolutionChoice<T>::NamedProduct>& ConvolutionChoice<T>::ProductsOf(
    ProductKind kind, const ConvolutionShape& shape) {
  const std::string key = absl::StrCat(static_cast<int>(kind), " ", ShapeText(shape));
  const auto [place, is_new] = products_.try_emplace(key);
  if (!is_new) return place->second;
  for (const auto& library : context_.libraries) {
    auto found = library->FindProducts(ProductOf<T>(kind, shape), context_.product_workspace,
                                       kProductsPerLibrary);
    if (!found.ok()) {
      LOG(WARNING) << "no product of " << library->name() << " for " << ShapeText(shape) << ": "
                   << found.status().message();
      continue;
    }
    for (size_t i = 0; i < found->size(); ++i) {
      place->second.push_back({absl::StrCat(library->name(), "/", i), std::move((*found)[i])});
    }
  }
  return place->second;
}

// All ways in which at most one product is a library's.
template <typename T>
std::vector<typename ConvolutionChoice<T>::Way> ConvolutionChoice<T>::WaysOf(const Call& call) {
  std::vector<Way> ways = {Way()};
  const auto add = [&](ProductKind kind, bool first) {
    for (const NamedProduct& named : ProductsOf(kind, call.shape)) {
      Way way;
      (first ? way.first : way.second) = named.product.get();
      (first ? way.first_name : way.second_name) = named.name;
      ways.push_back(way);
    }
  };
  add(call.forward() ? ProductKind::kForward : ProductKind::kWeightGradient, true);
  if (call.input_gradient()) add(ProductKind::kInputGradient, false);
  return ways;
}

// The way with these products. A product that the library does not have any more becomes ours.
template <typename T>
typename ConvolutionChoice<T>::Way ConvolutionChoice<T>::WayOf(const Call& call,
                                                               const std::string& first,
                                                               const std::string& second) {
  Way result;
  for (const Way& way : WaysOf(call)) {
    if (way.first != nullptr && way.first_name == first) {
      result.first = way.first;
      result.first_name = first;
    }
    if (way.second != nullptr && way.second_name == second) {
      result.second = way.second;
      result.second_name = second;
    }
  }
  return result;
}

template <typename T>
absl::StatusOr<typename ConvolutionChoice<T>::Way> ConvolutionChoice<T>::Choose(const Call& call) {
  const std::vector<Way> ways = WaysOf(call);
  if (ways.size() == 1) return ways[0];
  Scratch scratch(&queue_, &context_.allocate);
  const Trial own(call, &scratch), other(call, &scratch);
  float* const place = scratch.Take<float>(2);
  if (!scratch.status().ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no GPU memory to try libraries: ", scratch.status().message()));
  }
  PP_RETURN_IF_ERROR(own.call.Run(&queue_, Way()));

  // Returns the milliseconds of a library's way, or infinity if it cannot be used.
  const auto try_way = [&](const Way& way) {
    absl::StatusOr<double> time =
        context_.milliseconds(&queue_, [&] { return other.call.Run(&queue_, way); });
    const std::string name = absl::StrCat(way.first_name, " ", way.second_name);
    if (!time.ok()) {
      LOG(WARNING) << call.Key() << ": " << name << " fails: " << time.status().message();
      return std::numeric_limits<double>::infinity();
    }
    const float difference = Trial::Difference(&queue_, own, other, place);
    if (!(difference <= kLargestDifference<T>)) {
      LOG(WARNING) << call.Key() << ": " << name << " differs from our result by " << difference
                   << " of its largest number, allowed is "
                   << kLargestDifference<T> << "; it is not used";
      return std::numeric_limits<double>::infinity();
    }
    VLOG(1) << call.Key() << ": " << name << " takes " << *time << " ms";
    return *time;
  };

  double best_time = std::numeric_limits<double>::infinity(), own_time = best_time;
  Way best;
  if (context_.own_competes) {
    PP_ASSIGN_OR_RETURN(
        own_time, context_.milliseconds(&queue_, [&] { return other.call.Run(&queue_, Way()); }));
    best_time = own_time * kClearlyFaster;
  }
  Way first, second;  // the fastest with one product of a library
  double first_time = std::numeric_limits<double>::infinity(), second_time = first_time;
  for (size_t i = 1; i < ways.size(); ++i) {
    const double time = try_way(ways[i]);
    const bool is_first = ways[i].first != nullptr;
    double* const fastest = is_first ? &first_time : &second_time;
    if (time < *fastest) {
      *fastest = time;
      (is_first ? first : second) = ways[i];
    }
    if (time < best_time) {
      best_time = time;
      best = ways[i];
    }
  }
  if (!first.own() && !second.own()) {
    Way both = first;
    both.second = second.second;
    both.second_name = second.second_name;
    const double time = try_way(both);
    if (time < best_time) {
      best_time = time;
      best = both;
    }
  }
  if (queue_.error != cudaSuccess) return absl::AbortedError("the GPU has failed");
  LOG(INFO) << call.Key() << ": " << best.first_name
            << (call.input_gradient() ? absl::StrCat(" and ", best.second_name) : "")
            << (best.own() ? "" : absl::StrFormat(", %.3f ms", best_time))
            << (context_.own_competes ? absl::StrFormat(", our kernels %.3f ms", own_time) : "");
  return best;
}

template <typename T>
typename ConvolutionChoice<T>::Way ConvolutionChoice<T>::Decide(const Call& call,
                                                                const std::string& key) {
  const auto named = [&](const std::string& choice) {
    const std::vector<std::string> names = absl::StrSplit(choice, ' ');
    return WayOf(call, names.front(), names.back());
  };
  if (context_.own_competes) {
    const std::optional<std::string> kept = context_.file->Find(key);
    if (kept.has_value()) return named(*kept);
  }
  const absl::StatusOr<Way> best = Choose(call);
  if (!best.ok() && context_.own_competes) {
    // Another clone of this machine may have found memory for its trial in the meantime.
    const std::optional<std::string> kept = context_.file->FindAgain(key);
    if (kept.has_value()) return named(*kept);
  }
  if (!best.ok()) {
    LOG(WARNING) << key << ": our kernels, because " << best.status().message();
    return Way();
  }
  if (!context_.own_competes) return *best;
  return named(context_.file->Add(key, absl::StrCat(best->first_name, " ", best->second_name)));
}

template <typename T>
void ConvolutionChoice<T>::RunChosen(const Call& call) {
  if (queue_.error != cudaSuccess) return;
  const bool may = MayUseLibraries(call.shape);
  const std::string key = may ? call.Key() : "";
  auto found = chosen_.find(key);
  if (may && found == chosen_.end() && !queue_.recording) {
    found = chosen_.emplace(key, Decide(call, key)).first;
  }
  const Way way = found == chosen_.end() ? Way() : found->second;
  const absl::Status status = call.Run(&queue_, way);
  if (status.ok()) return;
  LOG(WARNING) << key << ": our kernels from now on, because " << status.message();
  found->second = Way();
  call.Run(&queue_, Way()).IgnoreError();  // our kernels report errors through the queue
}

template <typename T>
void ConvolutionChoice<T>::Forward(const ConvolutionShape& shape, const Lazy<T>& x,
                                   const float* weights, const float* bias, T* y,
                                   const StatisticsOut<T>& statistics, void* workspace) {
  Call call = {shape, x, weights, workspace};
  call.bias = bias;
  call.y = y;
  call.statistics = statistics;
  RunChosen(call);
}

template <typename T>
void ConvolutionChoice<T>::Backward(const ConvolutionShape& shape, const Lazy<T>& x,
                                    const float* weights, const OutputGradient<T>& dy,
                                    float* dweights, float* dbias, const InputGradient<T>& dx,
                                    void* workspace) {
  Call call = {shape, x, weights, workspace};
  call.dy = &dy;
  call.dweights = dweights;
  call.dbias = dbias;
  call.dx = dx;
  RunChosen(call);
}

template class ConvolutionChoice<float>;
template class ConvolutionChoice<Bfloat16>;

}  // namespace pushpull::PUSHPULL_CUDA

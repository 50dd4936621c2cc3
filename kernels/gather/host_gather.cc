// Tested by tests/kernels/gather/gather_test.cc.
#include "kernels/gather/host_gather.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/base/attributes.h"

namespace pushpull {
namespace {

using gather::Widen;
using gather::WideOf;

// The approximate number of elements per task. It is large enough that computing them takes longer
// than starting the task.
constexpr int64_t kTaskElements = 16 << 10;

// What a task computes at once: by default a row of the output. The overloads compute the same
// numbers, with the same bits, in an order that suits a CPU.

template <typename F>
int64_t Units(const F& formula) {
  return formula.rows;
}
template <typename F>
int64_t ElementsOfUnit(const F& formula) {
  return formula.channels;
}
template <typename F>
void RunUnit(const F& formula, int64_t row) {
  const F local = formula;  // so that the compiler need not read it again after a store
  for (int64_t c = 0; c < local.channels; ++c) local(row, c);
}

// As RunUnit, with the activation's function known to the compiler, which then makes vectors of the
// loop.
template <ActivationFunction kFunction, typename F>
void RunActivation(const F& formula, int64_t row) {
  F local = formula;
  local.activation.function = kFunction;
  for (int64_t c = 0; c < local.channels; ++c) local(row, c);
}
template <typename F>
void RunAnyActivation(const F& formula, int64_t row) {
  switch (formula.activation.function) {
    case ActivationFunction::kRelu:
      return RunActivation<ActivationFunction::kRelu>(formula, row);
    case ActivationFunction::kRelu6:
      return RunActivation<ActivationFunction::kRelu6>(formula, row);
    case ActivationFunction::kHardSigmoid:
      return RunActivation<ActivationFunction::kHardSigmoid>(formula, row);
    case ActivationFunction::kHardSwish:
      return RunActivation<ActivationFunction::kHardSwish>(formula, row);
    default:
      for (int64_t c = 0; c < formula.channels; ++c) formula(row, c);
  }
}
template <typename T>
void RunUnit(const gather::ActivationForward<T>& formula, int64_t row) {
  RunAnyActivation(formula, row);
}
template <typename T>
void RunUnit(const gather::ActivationBackward<T>& formula, int64_t row) {
  RunAnyActivation(formula, row);
}

// A sample: pixel by pixel, because the pixels of one channel lie far apart.
template <typename T>
int64_t ElementsOfUnit(const gather::MultiplyBackwardGate<T>& formula) {
  return formula.pixels * formula.channels;
}
template <typename T>
void RunUnit(const gather::MultiplyBackwardGate<T>& formula, int64_t row) {
  const int64_t channels = formula.channels;
  std::vector<WideOf<T>> sums(channels);
  for (int64_t p = 0; p < formula.pixels; ++p) {
    const T* const x = formula.x + (row * formula.pixels + p) * channels;
    const T* const dy = formula.dy + (row * formula.pixels + p) * channels;
    WideOf<T>* const sum = sums.data();
    for (int64_t c = 0; c < channels; ++c) sum[c] += Widen(dy[c]) * Widen(x[c]);
  }
  for (int64_t c = 0; c < channels; ++c) {
    gather::Narrow(sums[c], formula.dgate + row * channels + c);
  }
}

// Finds the largest elements of windows, all channels of one at a time.
template <typename T>
class LargestFinder {
 public:
  LargestFinder(const gather::PoolWindows& windows, const T* x, int64_t n)
      : windows_(windows),
        x_(x + n * windows.in.h * windows.in.w * windows.in.c),
        largest_(windows.in.c),
        places_(windows.in.c) {}

  // The pixel, h * in.w + w, of LargestOf for each channel. Valid until the next call.
  const std::vector<int32_t>& Find(int64_t oh, int64_t ow) {
    const gather::PoolWindows& s = windows_;
    const gather::Interval rows = gather::Covered(s, oh, s.padding.top, s.in.h);
    const gather::Interval columns = gather::Covered(s, ow, s.padding.left, s.in.w);
    bool first = true;
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w, first = false) {
        const int64_t pixel = h * s.in.w + w;
        Compare(s.in.c, static_cast<int32_t>(pixel), first, x_ + pixel * s.in.c, largest_.data(),
                places_.data());
      }
    }
    return places_;
  }

 private:
  // The loop has neither branches nor overlapping memory, so that the compiler makes vectors of it.
  // Inlined into Find it would not (GCC 12).
  ABSL_ATTRIBUTE_NOINLINE static void Compare(int64_t channels, int32_t pixel, bool first,
                                              const T* __restrict values,
                                              WideOf<T>* __restrict largest,
                                              int32_t* __restrict places) {
    for (int64_t c = 0; c < channels; ++c) {
      // The condition of LargestOf.
      const WideOf<T> value = Widen(values[c]);
      const bool better = first | (value > largest[c]) | (value != value);
      largest[c] = better ? value : largest[c];
      places[c] = better ? pixel : places[c];
    }
  }

  const gather::PoolWindows windows_;
  const T* const x_;  // of the sample
  std::vector<WideOf<T>> largest_;
  std::vector<int32_t> places_;
};

// A line of pixels of the output: all channels of a window are compared at once.
template <typename T>
int64_t Units(const gather::MaxPoolForward<T>& formula) {
  return formula.windows.in.n * formula.windows.out_h;
}
template <typename T>
int64_t ElementsOfUnit(const gather::MaxPoolForward<T>& formula) {
  return formula.windows.out_w * formula.channels;
}
template <typename T>
void RunUnit(const gather::MaxPoolForward<T>& formula, int64_t line) {
  const gather::PoolWindows& s = formula.windows;
  const int64_t channels = formula.channels, n = line / s.out_h, oh = line % s.out_h;
  const T* const x = formula.x + n * s.in.h * s.in.w * channels;
  LargestFinder<T> finder(s, formula.x, n);
  for (int64_t ow = 0; ow < s.out_w; ++ow) {
    const std::vector<int32_t>& places = finder.Find(oh, ow);
    T* const y = formula.y + s.IndexOf(n, oh, ow, 0);
    for (int64_t c = 0; c < channels; ++c) y[c] = x[places[c] * channels + c];
  }
}

// A sample: the largest elements of each window are found once for all elements of the window. The
// sums have the order of the windows, as in the formula.
template <typename T>
int64_t Units(const gather::MaxPoolBackward<T>& formula) {
  return formula.windows.in.n;
}
template <typename T>
int64_t ElementsOfUnit(const gather::MaxPoolBackward<T>& formula) {
  return formula.windows.in.h * formula.windows.in.w * formula.channels;
}
template <typename T>
void RunUnit(const gather::MaxPoolBackward<T>& formula, int64_t n) {
  const gather::PoolWindows& s = formula.windows;
  const int64_t channels = formula.channels, size = s.in.h * s.in.w * channels;
  std::vector<WideOf<T>> sums(size);
  LargestFinder<T> finder(s, formula.x, n);
  for (int64_t oh = 0; oh < s.out_h; ++oh) {
    for (int64_t ow = 0; ow < s.out_w; ++ow) {
      const std::vector<int32_t>& places = finder.Find(oh, ow);
      const T* const dy = formula.dy + s.IndexOf(n, oh, ow, 0);
      for (int64_t c = 0; c < channels; ++c) sums[places[c] * channels + c] += Widen(dy[c]);
    }
  }
  for (int64_t i = 0; i < size; ++i) gather::Narrow(sums[i], formula.dx + n * size + i);
}

// The sum of pixels, all channels at a time.
template <typename T>
class PixelSum {
 public:
  explicit PixelSum(int64_t channels) : sums_(channels) {}

  void Clear() { std::fill(sums_.begin(), sums_.end(), WideOf<T>(0)); }
  void Add(const T* pixel) { AddTo(static_cast<int64_t>(sums_.size()), pixel, sums_.data()); }
  void AddQuotient(const T* pixel, int64_t divisor) {
    AddQuotientTo(static_cast<int64_t>(sums_.size()), pixel, WideOf<T>(divisor), sums_.data());
  }
  void Write(T* pixel) const {
    for (size_t c = 0; c < sums_.size(); ++c) gather::Narrow(sums_[c], pixel + c);
  }
  void WriteQuotient(int64_t divisor, T* pixel) const {
    const WideOf<T> wide = WideOf<T>(divisor);
    for (size_t c = 0; c < sums_.size(); ++c) gather::Narrow(sums_[c] / wide, pixel + c);
  }

 private:
  // The compiler makes vectors of these loops, as of LargestFinder::Compare.
  ABSL_ATTRIBUTE_NOINLINE static void AddTo(int64_t channels, const T* __restrict pixel,
                                            WideOf<T>* __restrict sums) {
    for (int64_t c = 0; c < channels; ++c) sums[c] += Widen(pixel[c]);
  }
  ABSL_ATTRIBUTE_NOINLINE static void AddQuotientTo(int64_t channels, const T* __restrict pixel,
                                                    WideOf<T> divisor, WideOf<T>* __restrict sums) {
    for (int64_t c = 0; c < channels; ++c) sums[c] += Widen(pixel[c]) / divisor;
  }

  std::vector<WideOf<T>> sums_;
};

// A line of pixels of the output.
template <typename T>
int64_t Units(const gather::AveragePoolForward<T>& formula) {
  return formula.windows.in.n * formula.windows.out_h;
}
template <typename T>
int64_t ElementsOfUnit(const gather::AveragePoolForward<T>& formula) {
  return formula.windows.out_w * formula.channels;
}
template <typename T>
void RunUnit(const gather::AveragePoolForward<T>& formula, int64_t line) {
  const gather::PoolWindows& s = formula.windows;
  const int64_t channels = formula.channels, n = line / s.out_h, oh = line % s.out_h;
  const T* const x = formula.x + n * s.in.h * s.in.w * channels;
  const gather::Interval rows = gather::Covered(s, oh, s.padding.top, s.in.h);
  PixelSum<T> sum(channels);
  for (int64_t ow = 0; ow < s.out_w; ++ow) {
    const gather::Interval columns = gather::Covered(s, ow, s.padding.left, s.in.w);
    sum.Clear();
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        sum.Add(x + (h * s.in.w + w) * channels);
      }
    }
    sum.WriteQuotient(gather::CoveredCount(s, oh, ow), formula.y + s.IndexOf(n, oh, ow, 0));
  }
}

// A line of pixels of dx.
template <typename T>
int64_t Units(const gather::AveragePoolBackward<T>& formula) {
  return formula.windows.in.n * formula.windows.in.h;
}
template <typename T>
int64_t ElementsOfUnit(const gather::AveragePoolBackward<T>& formula) {
  return formula.windows.in.w * formula.channels;
}
template <typename T>
void RunUnit(const gather::AveragePoolBackward<T>& formula, int64_t line) {
  const gather::PoolWindows& s = formula.windows;
  const int64_t n = line / s.in.h;
  const gather::Interval rows = gather::Covering(s, line % s.in.h, s.padding.top, s.out_h);
  PixelSum<T> sum(formula.channels);
  for (int64_t w = 0; w < s.in.w; ++w) {
    const gather::Interval columns = gather::Covering(s, w, s.padding.left, s.out_w);
    sum.Clear();
    for (int64_t oh = rows.begin; oh < rows.end; ++oh) {
      for (int64_t ow = columns.begin; ow < columns.end; ++ow) {
        sum.AddQuotient(formula.dy + s.IndexOf(n, oh, ow, 0), gather::CoveredCount(s, oh, ow));
      }
    }
    sum.Write(formula.dx + (line * s.in.w + w) * formula.channels);
  }
}

// A line of pixels of dx.
template <typename T>
int64_t Units(const gather::UpsampleBackward<T>& formula) {
  return formula.in.n * formula.in.h;
}
template <typename T>
int64_t ElementsOfUnit(const gather::UpsampleBackward<T>& formula) {
  return formula.in.w * formula.channels;
}
template <typename T>
void RunUnit(const gather::UpsampleBackward<T>& formula, int64_t line) {
  const int64_t channels = formula.channels, factor = formula.factor, width = formula.in.w;
  const T* const dy = formula.dy + line * factor * width * factor * channels;
  PixelSum<T> sum(channels);
  for (int64_t w = 0; w < width; ++w) {
    sum.Clear();
    for (int64_t h = 0; h < factor; ++h) {
      for (int64_t k = 0; k < factor; ++k) {
        sum.Add(dy + ((h * width + w) * factor + k) * channels);
      }
    }
    sum.Write(formula.dx + (line * width + w) * channels);
  }
}

}  // namespace

template <typename T>
void RunOnHost(const Gather<T>& gather, ParallelLoop parallel_for) {
  std::visit(
      [&](const auto& formula) {
        const int64_t units = Units(formula);
        const int64_t per_task =
            std::max<int64_t>(1, kTaskElements / std::max<int64_t>(ElementsOfUnit(formula), 1));
        parallel_for((units + per_task - 1) / per_task, [&](int64_t task) {
          const int64_t end = std::min(units, (task + 1) * per_task);
          for (int64_t unit = task * per_task; unit < end; ++unit) RunUnit(formula, unit);
        });
      },
      gather);
}

template void RunOnHost<float>(const Gather<float>&, ParallelLoop);
template void RunOnHost<Bfloat16>(const Gather<Bfloat16>&, ParallelLoop);
template void RunOnHost<double>(const Gather<double>&, ParallelLoop);

}  // namespace pushpull

// Sources of the left operand of a matrix product. A source computes rows, one per pixel, and packs
// them into panels (kernels/cpu/panels.h). Sources are immutable views: what they refer to must
// outlive them, and Pack may run on several threads at once. P is the type of the packed numbers
// (kernels/cpu/packed_numbers.h).
#ifndef PUSHPULL_KERNELS_CPU_ROW_SOURCE_H_
#define PUSHPULL_KERNELS_CPU_ROW_SOURCE_H_

#include <cstdint>

#include "kernels/cpu/channel_coefficients.h"
#include "kernels/cpu/input_phases.h"
#include "kernels/cpu/packed_numbers.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/prefetcher.h"
#include "kernels/operators.h"

namespace pushpull {

template <typename P>
class RowSource {
 public:
  explicit RowSource(const Panels& panels) : panels_(panels) {}
  virtual ~RowSource() = default;

  // Computes the channels of a range of panels() of rows [first, first + rows) and writes them as
  // rows [out_first, out_first + rows) of `out`, a block of out_rows rows in the layout of these
  // panels: the panel that starts with channel c begins at out + out_rows * (c - the first channel
  // of the range).
  virtual void Pack(const PanelRange& range, int64_t first, int64_t rows, P* out, int64_t out_rows,
                    int64_t out_first) const = 0;
  // Adds the memory that Pack reads for all channels of these rows, if it is a few pieces; else
  // nothing.
  virtual void AddTo(Prefetcher*, int64_t /*first*/, int64_t /*rows*/) const {}
  const Panels& panels() const { return panels_; }

 protected:
  Panels panels_;
};

// The rows are the pixels of the value of a lazy input.
template <typename P>
class ValueRows : public RowSource<P> {
 public:
  ValueRows(const Lazy<TensorOf<P>>& x, const LazyCoefficients& coefficients)
      : RowSource<P>(InnerPanels<P>(x.shape.c)), x_(x), coefficients_(coefficients) {}
  void Pack(const PanelRange& range, int64_t first, int64_t rows, P* out, int64_t out_rows,
            int64_t out_first) const override;
  void AddTo(Prefetcher* prefetcher, int64_t first, int64_t rows) const override;

 private:
  const Lazy<TensorOf<P>>& x_;
  const LazyCoefficients& coefficients_;
};

// The rows are the pixels of the gradient of a convolution's raw output, in ResultPanels, since
// they are the right operand of the weight gradient.
template <typename P>
class GradientRows : public RowSource<P> {
 public:
  GradientRows(int64_t channels, const OutputGradient<TensorOf<P>>& dy,
               const GradientCoefficients& coefficients)
      : RowSource<P>(ResultPanels(channels)), dy_(dy), coefficients_(coefficients) {}
  void Pack(const PanelRange& range, int64_t first, int64_t rows, P* out, int64_t out_rows,
            int64_t out_first) const override;
  void AddTo(Prefetcher* prefetcher, int64_t first, int64_t rows) const override;

 private:
  const OutputGradient<TensorOf<P>>& dy_;
  const GradientCoefficients& coefficients_;
};

// There is a row for each output pixel: the input pixels under the kernel, [kernel * kernel *
// in.c], with zeros for padding. `x` is the computed input.
template <typename P>
class PatchRows : public RowSource<P> {
 public:
  PatchRows(const ConvolutionShape& shape, const TensorOf<P>* x)
      : RowSource<P>(InnerPanels<P>(int64_t{shape.kernel} * shape.kernel * shape.in.c)),
        shape_(shape),
        x_(x) {}
  void Pack(const PanelRange& range, int64_t first, int64_t rows, P* out, int64_t out_rows,
            int64_t out_first) const override;

 private:
  const ConvolutionShape& shape_;
  const TensorOf<P>* x_;
};

// There is a row for each input pixel of a phase: for each tap of the phase the gradient of the
// output pixel that reads the input pixel by this tap, [taps * out_channels], with zeros if there
// is none.
template <typename P>
class TransposedPatchRows : public RowSource<P> {
 public:
  TransposedPatchRows(const ConvolutionShape& shape, const InputPhase& phase, const TensorOf<P>* dy)
      : RowSource<P>(InnerPanels<P>(phase.taps() * shape.out_channels)),
        shape_(shape),
        phase_(phase),
        dy_(dy) {}
  void Pack(const PanelRange& range, int64_t first, int64_t rows, P* out, int64_t out_rows,
            int64_t out_first) const override;

 private:
  const ConvolutionShape& shape_;
  const InputPhase& phase_;
  const TensorOf<P>* dy_;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_ROW_SOURCE_H_

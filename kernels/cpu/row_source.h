// Sources of the left operand of a matrix product. A source computes rows, one per pixel, and packs
// them into panels (kernels/cpu/panels.h). Sources are immutable views: what they refer to must
// outlive them, and Pack may run on several threads at once.
#ifndef PUSHPULL_KERNELS_CPU_ROW_SOURCE_H_
#define PUSHPULL_KERNELS_CPU_ROW_SOURCE_H_

#include <cstdint>

#include "kernels/cpu/channel_coefficients.h"
#include "kernels/cpu/panels.h"
#include "kernels/operators.h"

namespace pushpull {

class RowSource {
 public:
  explicit RowSource(int64_t channels) : panels_(channels) {}
  virtual ~RowSource() = default;

  // Computes rows [first, first + rows) and writes them as rows [out_first, out_first + rows) of
  // `out`, a block of out_rows rows in the layout panels().
  virtual void Pack(int64_t first, int64_t rows, float* out, int64_t out_rows,
                    int64_t out_first) const = 0;
  const Panels& panels() const { return panels_; }

 protected:
  Panels panels_;
};

// The rows are the pixels of the value of a lazy input.
class ValueRows : public RowSource {
 public:
  ValueRows(const Lazy<float>& x, const LazyCoefficients& coefficients)
      : RowSource(x.shape.c), x_(x), coefficients_(coefficients) {}
  void Pack(int64_t first, int64_t rows, float* out, int64_t out_rows,
            int64_t out_first) const override;

 private:
  const Lazy<float>& x_;
  const LazyCoefficients& coefficients_;
};

// The rows are the pixels of the gradient of a convolution's raw output.
class GradientRows : public RowSource {
 public:
  GradientRows(int64_t channels, const OutputGradient<float>& dy,
               const GradientCoefficients& coefficients)
      : RowSource(channels), dy_(dy), coefficients_(coefficients) {}
  void Pack(int64_t first, int64_t rows, float* out, int64_t out_rows,
            int64_t out_first) const override;

 private:
  const OutputGradient<float>& dy_;
  const GradientCoefficients& coefficients_;
};

// There is a row for each output pixel: the input pixels under the kernel, [kernel * kernel *
// in.c], with zeros for padding. `x` is the computed input.
class PatchRows : public RowSource {
 public:
  PatchRows(const ConvolutionShape& shape, const float* x)
      : RowSource(int64_t{shape.kernel} * shape.kernel * shape.in.c), shape_(shape), x_(x) {}
  void Pack(int64_t first, int64_t rows, float* out, int64_t out_rows,
            int64_t out_first) const override;

 private:
  const ConvolutionShape& shape_;
  const float* x_;
};

// There is a row for each input pixel: for each tap the gradient of the output pixel that reads the
// input pixel by this tap, [kernel * kernel * out_channels], with zeros if there is none.
class TransposedPatchRows : public RowSource {
 public:
  TransposedPatchRows(const ConvolutionShape& shape, const float* dy)
      : RowSource(int64_t{shape.kernel} * shape.kernel * shape.out_channels),
        shape_(shape),
        dy_(dy) {}
  void Pack(int64_t first, int64_t rows, float* out, int64_t out_rows,
            int64_t out_first) const override;

 private:
  const ConvolutionShape& shape_;
  const float* dy_;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_ROW_SOURCE_H_

// The pixels and taps of a convolution that is computed as a matrix product, whose left operand has
// a row per pixel and columns per (tap, channel); convolution_rows.cuh explains it.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_GEOMETRY_CUH_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_GEOMETRY_CUH_

#include "kernels/cuda/convolution_sources.cuh"
#include "kernels/cuda/divisor.h"

namespace pushpull::PUSHPULL_CUDA {

struct ConvolutionGeometry {
  int in_h, in_w, in_c, out_h, out_w, out_c;
  int kernel, stride, pad_top, pad_left;
  int in_rows, out_rows;  // pixels of all samples
  int in_columns;         // kernel * kernel * channels of x
  Divisor by_in_w, by_in_pixels, by_out_w, by_out_pixels, by_kernel, by_stride;

  explicit ConvolutionGeometry(const ConvolutionShape& s)
      : in_h(static_cast<int>(s.in.h)),
        in_w(static_cast<int>(s.in.w)),
        in_c(static_cast<int>(s.in.c)),
        out_h(static_cast<int>(s.out_h())),
        out_w(static_cast<int>(s.out_w())),
        out_c(static_cast<int>(s.out_channels)),
        kernel(s.kernel),
        stride(s.stride),
        pad_top(s.padding.top),
        pad_left(s.padding.left),
        in_rows(static_cast<int>(s.in.rows())),
        out_rows(static_cast<int>(s.out().rows())),
        in_columns(s.kernel * s.kernel * in_c),
        by_in_w(in_w),
        by_in_pixels(in_h * in_w),
        by_out_w(out_w),
        by_out_pixels(out_h * out_w),
        by_kernel(kernel),
        by_stride(stride) {}

  // Returns the number of columns of the left operand of a product whose taps have `channels`
  // channels.
  PUSHPULL_HOST_DEVICE int Reduction(int channels) const {
    return kernel * kernel * PaddedChannels(channels);
  }
};

// How eight neighbouring columns of a row are read. Channels in memory are a multiple of 8.
enum class Access {
  kPointwise,  // 1x1, stride 1, no padding: the tensor is the operand
  kTaps,       // one vector of one tap
};

// The pixels that a pixel meets by a tap: Start is computed once per pixel, Find for each tap. The
// conditions are joined without branches.
struct Start {
  int h, w;
};

// Find returns the input pixel that tap (kh, kw) of an output pixel reads; false if it is padding.
struct ForwardTaps {
  static constexpr bool kBackward = false;
  static __device__ __forceinline__ Start StartOf(const ConvolutionGeometry& g, int h, int w) {
    return {h * g.stride - g.pad_top, w * g.stride - g.pad_left};
  }
  static __device__ __forceinline__ bool Find(const ConvolutionGeometry& g, Start start, int kh,
                                              int kw, int* from_h, int* from_w) {
    *from_h = start.h + kh;
    *from_w = start.w + kw;
    return (static_cast<unsigned>(*from_h) < static_cast<unsigned>(g.in_h)) &
           (static_cast<unsigned>(*from_w) < static_cast<unsigned>(g.in_w));
  }
};

// Find returns the output pixel that reads an input pixel by tap (kh, kw); false if there is none.
struct BackwardTaps {
  static constexpr bool kBackward = true;
  static __device__ __forceinline__ Start StartOf(const ConvolutionGeometry& g, int h, int w) {
    return {h + g.pad_top, w + g.pad_left};
  }
  static __device__ __forceinline__ bool Find(const ConvolutionGeometry& g, Start start, int kh,
                                              int kw, int* from_h, int* from_w) {
    *from_h = start.h - kh;
    *from_w = start.w - kw;
    bool found = (*from_h | *from_w) >= 0;
    if (g.stride > 1) {  // the quotients of negative numbers are not used
      int rest_h, rest_w;
      *from_h = g.by_stride.Quotient(*from_h, &rest_h);
      *from_w = g.by_stride.Quotient(*from_w, &rest_w);
      found &= (rest_h | rest_w) == 0;
    }
    return found & (static_cast<unsigned>(*from_h) < static_cast<unsigned>(g.out_h)) &
           (static_cast<unsigned>(*from_w) < static_cast<unsigned>(g.out_w));
  }
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_GEOMETRY_CUH_

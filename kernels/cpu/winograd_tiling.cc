// Tested by tests/kernels/cpu/winograd_product_test.cc.
#include "kernels/cpu/winograd_tiling.h"

namespace pushpull {

namespace {

constexpr int64_t kMinChannels = 64;
constexpr int64_t kMinTerms = 24;

// Whether the tiles need at most two thirds of the multiplications of the direct sum.
bool Pays(const WinogradTiling& tiling) {
  const int64_t direct = 9 * tiling.result.h * tiling.result.w;
  const int64_t minimal = kWinogradPositions * tiling.tiles();
  return 2 * direct >= 3 * minimal;
}

}  // namespace

WinogradTiling ForwardTiling(const ConvolutionShape& shape) {
  return {shape.in, shape.out(), shape.padding.top, shape.padding.left};
}

WinogradTiling BackwardTiling(const ConvolutionShape& shape) {
  return {shape.out(), shape.in, 2 - shape.padding.top, 2 - shape.padding.left};
}

bool WinogradPays(const ConvolutionShape& shape) {
  return shape.kernel == 3 && shape.stride == 1 && shape.in.c >= kMinChannels &&
         shape.out_channels >= kMinChannels && Pays(ForwardTiling(shape)) &&
         Pays(BackwardTiling(shape));
}

bool WinogradWeightGradientPays(const ConvolutionShape& shape) {
  return WinogradPays(shape) && ForwardTiling(shape).all_tiles() >= kMinTerms;
}

}  // namespace pushpull

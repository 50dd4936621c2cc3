// Tested by tests/kernels/cpu/fast_convolution_test.cc.
#include "kernels/cpu/phased_input_gradient.h"

#include <algorithm>

#include "kernels/cpu/kernel_loop.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/row_source.h"
#include "kernels/cpu/weight_panels.h"

namespace pushpull {

namespace {

constexpr int64_t kUnreadRows = 96;  // the rows of a block of pixels that no tap reads
int64_t UnreadBlocks(int64_t rows) { return (rows + kUnreadRows - 1) / kUnreadRows; }

// Finishes tiles whose rows are pixels of a phase. In the input, the pixels of a line of the phase
// are `stride` rows apart; with stride 1 all pixels follow each other.
template <typename T>
class PhaseFinisher : public TileFinisher {
 public:
  // Blocks are numbered from `first_block` on.
  PhaseFinisher(const InputPhase& phase, const BackwardFinisher<T>& finisher, int64_t first_block)
      : phase_(phase), finisher_(finisher), first_block_(first_block) {}

  void Finish(const Panel& panel, int64_t first_row, int64_t rows, const float* tile,
              int64_t block) const override {
    FinishLines(panel, panel.width, first_row, rows, tile, block);
  }
  // The same for a product that is zero.
  void FinishZeros(const Panel& panel, int64_t first_row, int64_t rows, int64_t block) const {
    alignas(64) static constexpr float kZeros[kMaxPanelWidth] = {};
    FinishLines(panel, 0, first_row, rows, kZeros, block);
  }

 private:
  // The rows of the tile are `stride` floats apart.
  void FinishLines(const Panel& panel, int64_t stride, int64_t first_row, int64_t rows,
                   const float* tile, int64_t block) const {
    const TileSpan span{panel.start, panel.valid, stride, phase_.stride};
    for (int64_t r = 0; r < rows;) {
      const int64_t left_of_line = phase_.pixels.w - (first_row + r) % phase_.pixels.w;
      const int64_t part = phase_.stride == 1 ? rows : std::min(rows - r, left_of_line);
      finisher_.FinishRows(span, phase_.InputRow(first_row + r), part, tile + r * stride,
                           first_block_ + block, r == 0 ? Store::kWrite : Store::kAdd);
      r += part;
    }
  }

  const InputPhase& phase_;
  const BackwardFinisher<T>& finisher_;
  int64_t first_block_;
};

}  // namespace

template <typename P>
PhasedInputGradient<P>::PhasedInputGradient(const ConvolutionShape& shape, int threads,
                                            Arena* arena)
    : shape_(shape) {
  Arena largest = *arena;
  for (const InputPhase& phase : InputPhases(shape)) {
    const int64_t rows = phase.pixels.rows(), inner = phase.taps() * shape.out_channels;
    PhaseProduct entry;
    entry.phase = phase;
    entry.first_block = blocks_;
    if (phase.taps() == 0) {
      blocks_ += UnreadBlocks(rows);
    } else {
      Arena own = *arena;
      const int64_t block_rows = BlockRows(inner);
      entry.product.emplace(rows, InnerPanels<P>(inner), shape.in.c,
                            ChooseCutOfPatches(rows, inner * shape.in.c, block_rows), block_rows,
                            threads, &own);
      entry.scratch = own.Numbers<P>(entry.product->ScratchNumbers(threads));
      blocks_ += entry.product->blocks();
      if (own.used_bytes() > largest.used_bytes()) largest = own;
    }
    products_.push_back(entry);
  }
  *arena = largest;
}

template <typename P>
void PhasedInputGradient<P>::Run(const TensorOf<P>* dy, const WeightOperand& weights,
                                 const BackwardFinisher<TensorOf<P>>& finisher,
                                 ThreadPool* pool) const {
  for (const PhaseProduct& entry : products_) {
    const InputPhase& phase = entry.phase;
    const PhaseFinisher<TensorOf<P>> phase_finisher(phase, finisher, entry.first_block);
    if (entry.product.has_value()) {
      entry.product->Run(TransposedPatchRows<P>(shape_, phase, dy), weights.OfPhase(phase),
                         phase_finisher, entry.scratch, pool);
      continue;
    }
    const int64_t rows = phase.pixels.rows();
    const Panels panels = ResultPanels(shape_.in.c);
    KernelLoop(pool, UnreadBlocks(rows), [&](int64_t block) {
      const int64_t first = block * kUnreadRows;
      for (int64_t p = 0; p < panels.count(); ++p) {
        phase_finisher.FinishZeros(panels[p], first, std::min(kUnreadRows, rows - first), block);
      }
    });
  }
}

template class PhasedInputGradient<float>;
template class PhasedInputGradient<Bfloat16>;
template class PhasedInputGradient<BfloatAsFloat>;

}  // namespace pushpull

// Outputs and objects of a detector, with their loss on the CPU and on a GPU or its emulation.
#ifndef PUSHPULL_TESTS_KERNELS_CUDA_SSD_CASE_H_
#define PUSHPULL_TESTS_KERNELS_CUDA_SSD_CASE_H_

#include <cstdint>
#include <vector>

#include "kernels/cuda/platform.h"
#include "kernels/detection/ssd_loss.h"

namespace pushpull::PUSHPULL_CUDA {

struct SsdCase {
  DetectionSpec spec;  // its heads are not used
  int64_t samples = 2;
  std::vector<int64_t> head_anchors;
  std::vector<BoundingBox> anchors;
  std::vector<std::vector<LabeledBox>> objects;  // per sample
  // [head][samples, anchors of the head, 4 or num_classes + 1], one head after another.
  std::vector<double> codes, scores;
  bool wants_gradient = true;
  int head_without_gradient = -1;

  int64_t num_anchors() const { return static_cast<int64_t>(anchors.size()); }
};

// Random boxes, some of them equal, objects that do and do not match anchors, and some equal
// outputs.
SsdCase RandomSsdCase(uint64_t stream, const DetectionSpec& spec, int64_t samples,
                      const std::vector<int64_t>& head_anchors, int max_objects);

// Gradients are rounded to the type. Elements that were not written are 777.
struct SsdOutcome {
  SsdLossResult result;
  std::vector<double> dcodes, dscores;
};

// Computed in double from outputs rounded to T.
template <typename T>
SsdOutcome SsdLossByCpu(const SsdCase& the_case);

// Also expects the result not to depend on the order of the threads.
template <typename T>
SsdOutcome SsdLossByGpu(const SsdCase& the_case);

// Expects equal losses, counts, chosen anchors and gradients from both.
template <typename T>
void CheckSsdCase(const SsdCase& the_case);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_TESTS_KERNELS_CUDA_SSD_CASE_H_

#include "worker/model/detection_outputs.h"

#include <algorithm>

#include "glog/logging.h"

namespace pushpull {
namespace {

// Calls copy(output, offset within the output, is it a list of codes, offset in that list, count)
// for each run of numbers that is contiguous in both.
template <typename Copy>
void ForEachRun(const DetectionSpec& spec, int64_t samples, const Copy& copy) {
  const int64_t anchors = spec.num_anchors();
  const int64_t columns = spec.num_classes + 1;
  for (int64_t s = 0; s < samples; ++s) {
    int64_t first = s * anchors;
    for (size_t h = 0; h < spec.heads.size(); ++h) {
      const int64_t count = spec.heads[h].num_anchors();
      copy(2 * h, s * count * kBoxCodeSize, true, first * kBoxCodeSize, count * kBoxCodeSize);
      copy(2 * h + 1, s * count * columns, false, first * columns, count * columns);
      first += count;
    }
  }
}

}  // namespace

template <typename T>
void GatherDetectionOutputs(const DetectionSpec& spec, int64_t samples,
                            absl::Span<const T* const> outputs, T* box_codes, T* class_scores) {
  CHECK_EQ(outputs.size(), 2 * spec.heads.size());
  ForEachRun(spec, samples, [&](size_t output, int64_t at, bool codes, int64_t to, int64_t count) {
    std::copy_n(outputs[output] + at, count, (codes ? box_codes : class_scores) + to);
  });
}

template <typename T>
void ScatterDetectionGradients(const DetectionSpec& spec, int64_t samples, const T* dbox_codes,
                               const T* dclass_scores, absl::Span<T* const> doutputs) {
  CHECK_EQ(doutputs.size(), 2 * spec.heads.size());
  ForEachRun(spec, samples, [&](size_t output, int64_t to, bool codes, int64_t at, int64_t count) {
    if (doutputs[output] == nullptr) return;
    std::copy_n((codes ? dbox_codes : dclass_scores) + at, count, doutputs[output] + to);
  });
}

template void GatherDetectionOutputs<float>(const DetectionSpec&, int64_t,
                                            absl::Span<const float* const>, float*, float*);
template void GatherDetectionOutputs<double>(const DetectionSpec&, int64_t,
                                             absl::Span<const double* const>, double*, double*);
template void ScatterDetectionGradients<float>(const DetectionSpec&, int64_t, const float*,
                                               const float*, absl::Span<float* const>);
template void ScatterDetectionGradients<double>(const DetectionSpec&, int64_t, const double*,
                                                const double*, absl::Span<double* const>);

}  // namespace pushpull

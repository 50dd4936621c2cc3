#include "tests/kernels/cuda/ssd_case.h"

#include <cmath>

#include "kernels/cuda/losses.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/testkit/kernels/compare.h"
#include "tests/testkit/kernels/serial_loop.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr double kUntouched = 777.0;

BoundingBox RandomBox(CounterRandom* random) {
  const float y = random->NextFloat() - 0.1f, x = random->NextFloat() - 0.1f;
  const float height = 0.05f + 0.5f * random->NextFloat();
  const float width = 0.05f + 0.5f * random->NextFloat();
  return {y, x, y + height, x + width};
}

// Lays the heads of a case over its concatenated tensors. V is the type of the numbers.
template <typename V>
std::vector<SsdHeadTensors<V>> HeadsOf(const SsdCase& the_case, const V* codes, const V* scores,
                                       V* dcodes, V* dscores) {
  const int64_t columns = the_case.spec.num_classes + 1;
  std::vector<SsdHeadTensors<V>> heads;
  int64_t rows = 0;
  for (size_t h = 0; h < the_case.head_anchors.size(); ++h) {
    const bool wanted =
        the_case.wants_gradient && static_cast<int>(h) != the_case.head_without_gradient;
    heads.push_back({the_case.head_anchors[h], codes + rows * kBoxCodeSize, scores + rows * columns,
                     wanted ? dcodes + rows * kBoxCodeSize : nullptr,
                     wanted ? dscores + rows * columns : nullptr});
    rows += the_case.head_anchors[h] * the_case.samples;
  }
  return heads;
}

struct FlatObjects {
  std::vector<LabeledBox> objects;
  std::vector<int32_t> first = {0};
};

FlatObjects Flatten(const SsdCase& the_case) {
  FlatObjects flat;
  for (const std::vector<LabeledBox>& boxes : the_case.objects) {
    flat.objects.insert(flat.objects.end(), boxes.begin(), boxes.end());
    flat.first.push_back(static_cast<int32_t>(flat.objects.size()));
  }
  return flat;
}

template <typename V>
SsdLossArguments<V> ArgumentsOf(const SsdCase& the_case) {
  SsdLossArguments<V> arguments;
  arguments.spec = &the_case.spec;
  arguments.samples = the_case.samples;
  arguments.num_anchors = the_case.num_anchors();
  arguments.wants_gradient = the_case.wants_gradient;
  return arguments;
}

// Returns which rows are all zeros: those of anchors that are in no loss.
std::vector<bool> ZeroRows(const std::vector<double>& values, int64_t columns) {
  std::vector<bool> zero(values.size() / columns, true);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0.0) zero[i / columns] = false;
  }
  return zero;
}

void ExpectSameLoss(double got, double want) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << got;
  } else if (std::isinf(want)) {
    EXPECT_EQ(got, want);
  } else {
    EXPECT_NEAR(got, want, 1e-10 * std::max(1.0, std::abs(want)));
  }
}

// Replaces NaN by a number that no gradient has.
std::vector<double> WithoutNan(std::vector<double> values) {
  for (double& value : values) {
    if (std::isnan(value)) value = 55.5;
  }
  return values;
}

}  // namespace

SsdCase RandomSsdCase(uint64_t stream, const DetectionSpec& spec, int64_t samples,
                      const std::vector<int64_t>& head_anchors, int max_objects) {
  CounterRandom random(8, stream);
  SsdCase result;
  result.spec = spec;
  result.samples = samples;
  result.head_anchors = head_anchors;
  int64_t anchors = 0;
  for (const int64_t count : head_anchors) anchors += count;
  for (int64_t a = 0; a < anchors; ++a) {
    const bool repeats = a > 0 && random.NextBelow(8) == 0;
    result.anchors.push_back(repeats ? result.anchors[random.NextBelow(a)] : RandomBox(&random));
  }
  for (int64_t s = 0; s < samples; ++s) {
    std::vector<LabeledBox>& boxes = result.objects.emplace_back();
    const auto count = static_cast<int>(random.NextBelow(max_objects + 1));
    for (int b = 0; b < count; ++b) {
      LabeledBox box;
      const uint64_t kind = random.NextBelow(4);
      box.box = kind == 0   ? RandomBox(&random)
                : kind == 1 ? BoundingBox{2.0f, 2.0f, 2.1f, 2.1f}  // overlaps no anchor
                            : result.anchors[random.NextBelow(anchors)];
      box.label = static_cast<int32_t>(random.NextBelow(spec.num_classes));
      box.weight = random.NextBelow(5) == 0 ? 0.0f : 0.25f + random.NextFloat();
      boxes.push_back(box);
      if (random.NextBelow(4) == 0) boxes.push_back(box);
    }
  }
  const int64_t rows = anchors * samples;
  for (int64_t i = 0; i < rows * kBoxCodeSize; ++i)
    result.codes.push_back(1.5 * random.NextNormal());
  for (int64_t i = 0; i < rows * (spec.num_classes + 1); ++i) {
    result.scores.push_back(random.NextBelow(4) == 0 ? 0.5 : 3.0 * random.NextNormal());
  }
  return result;
}

template <typename T>
SsdOutcome SsdLossByCpu(const SsdCase& the_case) {
  const std::vector<double> codes = ToDoubles(Nearest<T>(the_case.codes));
  const std::vector<double> scores = ToDoubles(Nearest<T>(the_case.scores));
  SsdOutcome outcome;
  outcome.dcodes.assign(codes.size(), kUntouched);
  outcome.dscores.assign(scores.size(), kUntouched);
  const FlatObjects flat = Flatten(the_case);
  const auto heads =
      HeadsOf(the_case, codes.data(), scores.data(), outcome.dcodes.data(), outcome.dscores.data());
  SsdLossArguments<double> arguments = ArgumentsOf<double>(the_case);
  arguments.anchors = the_case.anchors.data();
  arguments.objects = flat.objects.data();
  arguments.first_object = flat.first.data();
  arguments.heads = heads;
  outcome.result = SsdLossOnCpu<double>(arguments, SerialLoop);
  return outcome;
}

template <typename T>
SsdOutcome SsdLossByGpu(const SsdCase& the_case) {
  const FlatObjects flat = Flatten(the_case);
  DeviceArray<T> codes(Nearest<T>(the_case.codes)), scores(Nearest<T>(the_case.scores));
  DeviceArray<BoundingBox> anchors(the_case.anchors);
  DeviceArray<LabeledBox> objects(flat.objects);
  DeviceArray<int32_t> first_object(flat.first);
  SsdOutcome outcome;
  InAllOrders([&] {
    DeviceArray<T> dcodes(std::vector<T>(the_case.codes.size(), Nearest<T>(kUntouched)));
    DeviceArray<T> dscores(std::vector<T>(the_case.scores.size(), Nearest<T>(kUntouched)));
    DeviceArray<SsdLossResult> result(1);
    DeviceArray<char> workspace(SsdLossWorkspaceBytes(the_case.samples, the_case.num_anchors()));
    const auto heads =
        HeadsOf<T>(the_case, codes.data(), scores.data(), dcodes.data(), dscores.data());
    SsdLossArguments<T> arguments = ArgumentsOf<T>(the_case);
    arguments.anchors = anchors.data();
    arguments.objects = objects.data();
    arguments.first_object = first_object.data();
    arguments.heads = heads;
    Queue queue;
    SsdLoss(&queue, arguments, result.data(), workspace.data());
    EXPECT_EQ(queue.error, cudaSuccess);
    outcome.result = result.Take()[0];
    outcome.dcodes = ToDoubles(dcodes.Take());
    outcome.dscores = ToDoubles(dscores.Take());
    std::vector<double> all = outcome.dcodes;
    all.insert(all.end(), outcome.dscores.begin(), outcome.dscores.end());
    all.push_back(outcome.result.classification_loss);
    all.push_back(outcome.result.localization_loss);
    return all;
  });
  return outcome;
}

template <typename T>
void CheckSsdCase(const SsdCase& the_case) {
  const SsdOutcome want = SsdLossByCpu<T>(the_case), got = SsdLossByGpu<T>(the_case);
  ExpectSameLoss(got.result.classification_loss, want.result.classification_loss);
  ExpectSameLoss(got.result.localization_loss, want.result.localization_loss);
  EXPECT_EQ(got.result.matched_anchors, want.result.matched_anchors);
  EXPECT_EQ(got.result.ignored_anchors, want.result.ignored_anchors);
  EXPECT_EQ(got.result.mined_positives, want.result.mined_positives);
  EXPECT_EQ(got.result.mined_negatives, want.result.mined_negatives);
  const int64_t columns = the_case.spec.num_classes + 1;
  EXPECT_EQ(ZeroRows(got.dcodes, kBoxCodeSize), ZeroRows(want.dcodes, kBoxCodeSize));
  EXPECT_EQ(ZeroRows(got.dscores, columns), ZeroRows(want.dscores, columns));
  ExpectClose("dcodes", WithoutNan(want.dcodes), WithoutNan(got.dcodes), ToleranceOf<T>());
  ExpectClose("dscores", WithoutNan(want.dscores), WithoutNan(got.dscores), ToleranceOf<T>());
}

#define PUSHPULL_INSTANTIATE(T)                        \
  template SsdOutcome SsdLossByCpu<T>(const SsdCase&); \
  template SsdOutcome SsdLossByGpu<T>(const SsdCase&); \
  template void CheckSsdCase<T>(const SsdCase&);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull::PUSHPULL_CUDA

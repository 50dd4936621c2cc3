#include "kernels/detection/ssd_loss.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "glog/logging.h"

#include "kernels/detection/detection_losses.h"
#include "kernels/detection/hard_example_miner.h"

namespace pushpull {
namespace {

// One image between the two passes.
struct ImageLoss {
  std::vector<AnchorTarget> targets;
  std::vector<int> kept;  // anchors in the loss
  double classification_loss = 0.0;
  double localization_loss = 0.0;
  double box_weight = 0.0;  // of all anchors
};

template <typename T>
class SsdLossComputation {
 public:
  explicit SsdLossComputation(const SsdLossArguments<T>& arguments)
      : arguments_(arguments),
        spec_(*arguments.spec),
        num_anchors_(static_cast<int>(arguments.anchors.size())),
        columns_(spec_.num_classes + 1),
        images_(arguments.objects.size()) {
    CHECK_EQ(arguments.dbox_codes == nullptr, arguments.dclass_scores == nullptr);
  }

  SsdLossResult Run(
      absl::FunctionRef<void(int64_t, absl::FunctionRef<void(int64_t)>)> parallel_for) {
    const int64_t samples = static_cast<int64_t>(images_.size());
    parallel_for(samples, [this](int64_t s) { ComputeImage(s); });
    SsdLossResult result;
    double box_weight = 0.0;
    for (const ImageLoss& image : images_) {
      box_weight += image.box_weight;
      result.classification_loss += image.classification_loss;
      result.localization_loss += image.localization_loss;
      Count(image, &result);
    }
    const double normalizer =
        spec_.loss.normalize_loss_by_num_matches ? std::max(box_weight, 1.0) : 1.0;
    const double code_size = spec_.loss.normalize_loc_loss_by_codesize ? kBoxCodeSize : 1.0;
    const double classification_factor = spec_.loss.classification_weight / normalizer;
    const double localization_factor = spec_.loss.localization_weight / (normalizer * code_size);
    result.classification_loss *= classification_factor;
    result.localization_loss *= localization_factor;
    if (arguments_.dbox_codes != nullptr) {
      parallel_for(samples, [&](int64_t s) {
        WriteGradient(s, classification_factor, localization_factor);
      });
    }
    return result;
  }

 private:
  const T* Code(int64_t s, int64_t a) const {
    return arguments_.box_codes + (s * num_anchors_ + a) * kBoxCodeSize;
  }
  absl::Span<const T> Scores(int64_t s, int64_t a) const {
    return {arguments_.class_scores + (s * num_anchors_ + a) * columns_,
            static_cast<size_t>(columns_)};
  }

  // TensorFlow's weighted L2 loss weighs the differences before it squares them.
  double LossWeight(const AnchorTarget& target) const {
    const double weight = target.box_weight;
    return spec_.loss.localization == DetectionLossSpec::Localization::kL2 ? weight * weight
                                                                           : weight;
  }

  void ComputeImage(int64_t s) {
    ImageLoss& image = images_[s];
    image.targets = AssignTargets(spec_, arguments_.anchors, arguments_.objects[s]);
    std::vector<double> classification(num_anchors_, 0.0);
    std::vector<double> localization(num_anchors_, 0.0);
    for (int a = 0; a < num_anchors_; ++a) {
      const AnchorTarget& target = image.targets[a];
      image.box_weight += target.box_weight;
      if (target.class_weight != 0.0f) {
        classification[a] =
            target.class_weight * ClassificationLoss(spec_.loss, Scores(s, a), target.class_column);
      }
      if (target.box_weight != 0.0f) {
        localization[a] =
            LossWeight(target) * LocalizationLoss(spec_.loss, Code(s, a), target.code);
      }
    }
    SelectAnchors(s, classification, localization, &image);
    for (const int a : image.kept) {
      image.classification_loss += classification[a];
      image.localization_loss += localization[a];
    }
  }

  void SelectAnchors(int64_t s, const std::vector<double>& classification,
                     const std::vector<double>& localization, ImageLoss* image) const {
    if (!spec_.loss.hard_example_miner.has_value()) {
      image->kept.resize(num_anchors_);
      std::iota(image->kept.begin(), image->kept.end(), 0);
      return;
    }
    std::vector<BoundingBox> boxes(num_anchors_);
    for (int a = 0; a < num_anchors_; ++a) {
      const T* const code = Code(s, a);
      boxes[a] =
          DecodeBox(spec_.box_coder, {code[0], code[1], code[2], code[3]}, arguments_.anchors[a]);
    }
    MiningInput input;
    input.classification_losses = classification;
    input.localization_losses = localization;
    input.predicted_boxes = boxes;
    input.targets = image->targets;
    image->kept = MineHardExamples(spec_.loss, *spec_.loss.hard_example_miner, input);
  }

  static void Count(const ImageLoss& image, SsdLossResult* result) {
    for (const AnchorTarget& target : image.targets) {
      result->matched_anchors += target.match >= 0;
      result->ignored_anchors += target.match == kIgnored;
    }
    for (const int a : image.kept) {
      result->mined_positives += image.targets[a].match >= 0;
      result->mined_negatives += image.targets[a].match == kUnmatched;
    }
  }

  void WriteGradient(int64_t s, double classification_factor, double localization_factor) const {
    T* const dcodes = arguments_.dbox_codes + s * num_anchors_ * kBoxCodeSize;
    T* const dscores = arguments_.dclass_scores + s * num_anchors_ * columns_;
    std::fill_n(dcodes, int64_t{num_anchors_} * kBoxCodeSize, T(0));
    std::fill_n(dscores, int64_t{num_anchors_} * columns_, T(0));
    for (const int a : images_[s].kept) {
      const AnchorTarget& target = images_[s].targets[a];
      if (target.class_weight != 0.0f) {
        ClassificationGradient(spec_.loss, Scores(s, a), target.class_column,
                               classification_factor * target.class_weight,
                               dscores + int64_t{a} * columns_);
      }
      if (target.box_weight != 0.0f) {
        LocalizationGradient(spec_.loss, Code(s, a), target.code,
                             localization_factor * LossWeight(target),
                             dcodes + int64_t{a} * kBoxCodeSize);
      }
    }
  }

  const SsdLossArguments<T>& arguments_;
  const DetectionSpec& spec_;
  const int num_anchors_;
  const int columns_;
  std::vector<ImageLoss> images_;
};

}  // namespace

template <typename T>
SsdLossResult SsdLossOnCpu(
    const SsdLossArguments<T>& arguments,
    absl::FunctionRef<void(int64_t, absl::FunctionRef<void(int64_t)>)> parallel_for) {
  return SsdLossComputation<T>(arguments).Run(parallel_for);
}

template SsdLossResult SsdLossOnCpu<float>(
    const SsdLossArguments<float>&,
    absl::FunctionRef<void(int64_t, absl::FunctionRef<void(int64_t)>)>);
template SsdLossResult SsdLossOnCpu<double>(
    const SsdLossArguments<double>&,
    absl::FunctionRef<void(int64_t, absl::FunctionRef<void(int64_t)>)>);

}  // namespace pushpull

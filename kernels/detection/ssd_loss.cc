// Tested by tests/kernels/detection/detection_units_test.cc.
// Tested by tests/kernels/detection/detection_golden_test.cc.
#include "kernels/detection/ssd_loss.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "glog/logging.h"

#include "kernels/detection/detection_losses.h"
#include "kernels/detection/hard_example_miner.h"
#include "kernels/detection/loss_formulas.h"
#include "kernels/gather/numbers.h"

namespace pushpull {
namespace {

// What the first pass over an image leaves for the second, which writes the gradient.
struct ImageLoss {
  std::vector<AnchorTarget> targets;
  std::vector<int> kept;  // the anchors in the loss
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
        formula_(LossFormulaOf(spec_.loss)),
        num_anchors_(static_cast<int>(arguments.num_anchors)),
        columns_(spec_.num_classes + 1),
        images_(arguments.samples) {
    for (const SsdHeadTensors<T>& head : arguments.heads) {
      for (int64_t a = 0; a < head.num_anchors; ++a) places_.push_back({&head, a});
    }
    CHECK_EQ(static_cast<int64_t>(places_.size()), arguments.num_anchors);
  }

  SsdLossResult Run(ParallelLoop parallel_for) {
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
    if (arguments_.wants_gradient) {
      parallel_for(samples, [&](int64_t s) {
        WriteGradient(s, classification_factor, localization_factor);
      });
    }
    return result;
  }

 private:
  // Where the outputs for an anchor are: entry `index` of each sample in the tensors of `head`.
  struct Place {
    const SsdHeadTensors<T>* head;
    int64_t index;
    int64_t Row(int64_t s) const { return s * head->num_anchors + index; }
  };

  absl::Span<const BoundingBox> anchors() const {
    return {arguments_.anchors, static_cast<size_t>(num_anchors_)};
  }
  absl::Span<const LabeledBox> Objects(int64_t s) const {
    const int32_t* const first = arguments_.first_object + s;
    return {arguments_.objects + first[0], static_cast<size_t>(first[1] - first[0])};
  }
  const T* Code(int64_t s, int64_t a) const {
    return places_[a].head->box_codes + places_[a].Row(s) * kBoxCodeSize;
  }
  absl::Span<const T> Scores(int64_t s, int64_t a) const {
    return {places_[a].head->class_scores + places_[a].Row(s) * columns_,
            static_cast<size_t>(columns_)};
  }

  double BoxWeight(const AnchorTarget& target) const {
    return LocalizationWeight(formula_, target.box_weight);
  }

  void ComputeImage(int64_t s) {
    ImageLoss& image = images_[s];
    image.targets = AssignTargets(spec_, anchors(), Objects(s));
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
        localization[a] = BoxWeight(target) * LocalizationLoss(spec_.loss, Code(s, a), target.code);
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
      BoxCode widened;
      for (int i = 0; i < kBoxCodeSize; ++i) {
        widened[i] = gather::Widen(code[i]);
      }
      boxes[a] = DecodeBox(spec_.box_coder, widened, anchors()[a]);
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
    for (const SsdHeadTensors<T>& head : arguments_.heads) {
      const int64_t first = s * head.num_anchors;
      if (head.dbox_codes != nullptr) {
        std::fill_n(head.dbox_codes + first * kBoxCodeSize, head.num_anchors * kBoxCodeSize, T{});
      }
      if (head.dclass_scores != nullptr) {
        std::fill_n(head.dclass_scores + first * columns_, head.num_anchors * columns_, T{});
      }
    }
    for (const int a : images_[s].kept) {
      const AnchorTarget& target = images_[s].targets[a];
      const SsdHeadTensors<T>& head = *places_[a].head;
      if (target.class_weight != 0.0f && head.dclass_scores != nullptr) {
        ClassificationGradient(spec_.loss, Scores(s, a), target.class_column,
                               classification_factor * target.class_weight,
                               head.dclass_scores + places_[a].Row(s) * columns_);
      }
      if (target.box_weight != 0.0f && head.dbox_codes != nullptr) {
        LocalizationGradient(spec_.loss, Code(s, a), target.code,
                             localization_factor * BoxWeight(target),
                             head.dbox_codes + places_[a].Row(s) * kBoxCodeSize);
      }
    }
  }

  const SsdLossArguments<T>& arguments_;
  const DetectionSpec& spec_;
  const LossFormula formula_;
  const int num_anchors_;
  const int columns_;
  std::vector<Place> places_;  // per anchor
  std::vector<ImageLoss> images_;
};

}  // namespace

template <typename T>
SsdLossResult SsdLossOnCpu(const SsdLossArguments<T>& arguments, ParallelLoop parallel_for) {
  return SsdLossComputation<T>(arguments).Run(parallel_for);
}

template SsdLossResult SsdLossOnCpu<float>(const SsdLossArguments<float>&, ParallelLoop);
template SsdLossResult SsdLossOnCpu<Bfloat16>(const SsdLossArguments<Bfloat16>&, ParallelLoop);
template SsdLossResult SsdLossOnCpu<double>(const SsdLossArguments<double>&, ParallelLoop);

}  // namespace pushpull

#include "worker/eval/image_classifier.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

// Returns no finite probability if a score is NaN or positive infinity.
std::vector<ClassProbability> Softmax(absl::Span<const float> scores) {
  const double highest = *std::max_element(scores.begin(), scores.end());
  std::vector<ClassProbability> classes;
  double sum = 0.0;
  for (size_t label = 0; label < scores.size(); ++label) {
    const double weight = std::exp(scores[label] - highest);
    classes.push_back({static_cast<int>(label), weight});
    sum += weight;
  }
  for (ClassProbability& entry : classes) entry.probability /= sum;
  return classes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ImageClassifier>> ImageClassifier::Load(
    FileSystem& files, const std::string& checkpoint_dir,
    const config::TrainEvalPipelineConfig& config, const TrainedNetworkOptions& options) {
  if (!config.model().has_classifier()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model in ", checkpoint_dir, " is a detector, expected a classifier"));
  }
  PP_ASSIGN_OR_RETURN(std::unique_ptr<TrainedNetwork> network,
                      TrainedNetwork::Load(files, checkpoint_dir, config, options));
  return std::unique_ptr<ImageClassifier>(new ImageClassifier(std::move(network)));
}

absl::StatusOr<std::vector<ClassProbability>> ImageClassifier::Classify(const Image& image,
                                                                        const std::string& image_id,
                                                                        int count) {
  CHECK_GE(count, 1);
  PP_RETURN_IF_ERROR(network_->Infer(image));
  std::vector<ClassProbability> classes =
      Softmax({network_->outputs()[0], static_cast<size_t>(network_->spec().num_classes)});
  LOG_IF(WARNING, !std::isfinite(classes[0].probability))
      << image_id << ": the scores of the network are not all finite, and neither are the "
      << "probabilities: the model of step " << step()
      << " has diverged; use an earlier checkpoint";
  std::stable_sort(classes.begin(), classes.end(),
                   [](const ClassProbability& a, const ClassProbability& b) {
                     return a.probability > b.probability;
                   });
  if (classes.size() > static_cast<size_t>(count)) classes.resize(count);
  return classes;
}

}  // namespace pushpull

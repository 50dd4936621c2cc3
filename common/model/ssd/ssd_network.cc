#include "common/model/ssd/ssd_network.h"

#include <utility>
#include <vector>

#include "common/config/frozen_batch_norms.h"
#include "common/model/detection_config.h"
#include "common/model/image_resize.h"
#include "common/model/network_builder.h"
#include "common/model/ssd/feature_extractors.h"
#include "common/model/ssd/predictors.h"

namespace pushpull {
namespace {

constexpr int kImageChannels = 3;

}  // namespace

NetworkSpec BuildSsd(const config::Ssd& ssd) {
  const ImageSize image = ResizedSize(ssd.image_resizer());
  NetworkBuilder builder(ssd.feature_extractor().type(),
                         {image.height, image.width, kImageChannels},
                         BatchNormsToFreeze(ssd) == FrozenBatchNorms::kAll);
  builder.UseFixedPadding(ssd.feature_extractor().use_explicit_padding());
  const std::vector<int> maps = AddFeatureMaps(ssd, &builder);
  builder.UseFixedPadding(false);
  DetectionSpec detection = ResolveDetection(ssd);
  std::vector<int> anchors;
  for (size_t i = 0; i < maps.size(); ++i) {
    anchors.push_back(AnchorsPerLocation(detection.anchors, static_cast<int>(i)));
  }
  detection.heads = AddPredictors(ssd, maps, anchors, &builder);
  NetworkSpec network = std::move(builder).Finish();
  network.num_classes = ssd.num_classes();
  network.keep_aspect_ratio = ResolveAspectRatioResize(ssd.image_resizer());
  network.detection = std::move(detection);
  return network;
}

}  // namespace pushpull

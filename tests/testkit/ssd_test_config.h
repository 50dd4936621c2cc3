// Pipeline configs of SSD detectors for tests.
#ifndef PUSHPULL_TESTS_TESTKIT_SSD_TEST_CONFIG_H_
#define PUSHPULL_TESTS_TESTKIT_SSD_TEST_CONFIG_H_

#include <string>

#include "absl/strings/string_view.h"

#include "protos/pipeline.pb.h"

namespace pushpull {

// Returns a config with the model { ssd } of TensorFlow's sample ssd_mobilenet_v1_pets or
// ssd_mobilenet_v2_coco, depending on the feature extractor. `ssd` and `train_config` (protobuf
// text) are merged over it.
config::TrainEvalPipelineConfig MakeSsdTestConfig(const std::string& feature_extractor_type,
                                                  const std::string& ssd = "",
                                                  const std::string& train_config = "");

// Returns the settings with which MakeSsdTestConfig makes a valid config of `type`, an element of
// SsdTypeNames(), for images with sides of `size` pixels: a multiple of 64, at least 128.
std::string SsdTestSettings(absl::string_view type, int size);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_SSD_TEST_CONFIG_H_

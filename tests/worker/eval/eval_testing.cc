#include "tests/worker/eval/eval_testing.h"

#include <memory>

#include "absl/types/span.h"
#include "glog/logging.h"

#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/manifest.h"
#include "common/config/pipeline_config.h"
#include "common/model/initializers.h"

namespace pushpull {
namespace {

constexpr char kConfig[] = R"(
model {
  classifier {
    num_classes: 10
    image_resizer { fixed_shape_resizer { height: 32 width: 32 } }
    feature_extractor {
      type: "mobilenet_v2"
      depth_multiplier: 0.25
      conv_hyperparams {
        activation: RELU_6
        regularizer { l2_regularizer { weight: 0.00004 } }
        initializer { truncated_normal_initializer { stddev: 0.09 } }
        batch_norm { decay: 0.9 scale: true center: true epsilon: 0.001 }
      }
    }
  }
}
train_config {
  batch_size: 8
  num_steps: 100
  optimizer {
    adam_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.001 } } }
    use_moving_average: true
  }
}
train_input_reader {
  synthetic_input_reader { num_examples: 100 height: 32 width: 32 num_classes: 10 }
}
eval_config { num_examples: 24 batch_size: 10 eval_interval_secs: 0 }
eval_input_reader {
  shuffle: false
  synthetic_input_reader { num_examples: 30 seed: 2 height: 32 width: 32 num_classes: 10 }
}
)";

}  // namespace

config::TrainEvalPipelineConfig TinyConfig() {
  absl::StatusOr<config::TrainEvalPipelineConfig> config = ParsePipelineConfig(kConfig, "tiny");
  CHECK(config.ok()) << config.status();
  return *std::move(config);
}

std::vector<float> TinyWeights(const VariableLayout& layout, uint64_t seed) {
  std::vector<float> weights(layout.total_elements());
  InitializeVariables(layout, seed, absl::MakeSpan(weights));
  // Initial weights would give nearly equal scores for every seed.
  CounterRandom random(seed, StableHash("tiny weights"));
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    if (layout.variables()[i].kind != VariableKind::kTrainable) continue;
    for (int64_t k = 0; k < layout.num_elements(i); ++k) {
      weights[layout.offset(i) + k] += 0.4f * (random.NextFloat() - 0.5f);
    }
  }
  return weights;
}

absl::Status PublishTiny(FileSystem& files, const std::string& directory,
                         const VariableLayout& layout, const TinyCheckpoint& checkpoint) {
  const std::vector<float> weights = TinyWeights(layout, checkpoint.weights_seed);
  const std::vector<float> ema = TinyWeights(layout, checkpoint.ema_seed);
  CheckpointManifest manifest;
  manifest.run_id = checkpoint.run_id;
  manifest.epoch = checkpoint.epoch;
  manifest.step = checkpoint.step;
  manifest.updates = checkpoint.step;
  manifest.training_done = checkpoint.training_done;
  manifest.num_images = checkpoint.num_images;
  manifest.has_ema = checkpoint.ema_seed != 0;
  DescribeLayout(layout, &manifest);
  ShardSnapshot snapshot;
  snapshot.range = {0, layout.total_elements()};
  snapshot.weights = weights.data();
  if (manifest.has_ema) snapshot.ema = ema.data();
  PP_ASSIGN_OR_RETURN(CheckpointFile file, WriteShardFile(files, directory, checkpoint.epoch,
                                                          checkpoint.step, layout, snapshot));
  manifest.files.push_back(std::move(file));
  return PublishCheckpoint(files, directory, manifest);
}

}  // namespace pushpull

#include "tests/worker/eval/eval_testing.h"

#include <memory>

#include "absl/types/span.h"
#include "glog/logging.h"

#include "common/base/random.h"
#include "common/checkpoint/manifest.h"
#include "common/config/pipeline_config.h"
#include "common/model/initializers.h"
#include "tests/testkit/one_shard_checkpoint.h"

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
  CheckpointManifest manifest;
  manifest.run_id = checkpoint.run_id;
  manifest.epoch = checkpoint.epoch;
  manifest.step = checkpoint.step;
  manifest.updates = checkpoint.step;
  manifest.training_done = checkpoint.training_done;
  manifest.num_images = checkpoint.num_images;
  std::vector<float> ema;
  if (checkpoint.ema_seed != 0) ema = TinyWeights(layout, checkpoint.ema_seed);
  return PublishOneShard(files, directory, layout, manifest,
                         TinyWeights(layout, checkpoint.weights_seed), ema);
}

}  // namespace pushpull

// Tests which changes of a server's settings its clones have to notice.
#include "ps_server/runtime/job_fingerprint.h"

#include <cstdint>
#include <set>
#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

constexpr char kFingerprintConfig[] = R"(
    model { classifier { num_classes: 4 feature_extractor { type: "mobilenet_v2"
      conv_hyperparams { regularizer { l2_regularizer { weight: 0.1 } } } } } }
    train_config { batch_size: 32 num_steps: 100 seed: 3
      optimizer { momentum_optimizer { learning_rate {
        constant_learning_rate { learning_rate: 0.1 } } } } }
    train_input_reader { synthetic_input_reader { num_examples: 10 } }
    eval_input_reader { synthetic_input_reader { num_examples: 10 } })";

// Returns kFingerprintConfig with `changes` merged over it.
config::TrainEvalPipelineConfig ConfigWith(const std::string& changes) {
  config::TrainEvalPipelineConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kFingerprintConfig, &config));
  EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(changes, &config)) << changes;
  return config;
}

std::string FingerprintOf(const std::string& changes, bool sync = true, int tasks = 1) {
  return JobFingerprint(ConfigWith(changes), sync, tasks);
}

TEST(JobFingerprintTest, ModeTasksAndWhatClonesComputeByCount) {
  const std::string before = FingerprintOf("");
  EXPECT_EQ(before.size(), 32u);
  EXPECT_EQ(FingerprintOf(""), before);
  EXPECT_NE(FingerprintOf("", /*sync=*/false), before);
  EXPECT_NE(FingerprintOf("", true, /*tasks=*/2), before);
  for (const char* changes :
       {"train_config { seed: 4 }", "train_config { batch_size: 64 }",
        "train_config { local_steps: 2 }", "train_config { add_regularization_loss: false }",
        "train_config { freeze_variables: 'x' }",
        "train_config { data_augmentation_options { random_horizontal_flip {} } }",
        "model { classifier { label_smoothing: 0.1 } }",
        "model { classifier { feature_extractor { conv_hyperparams { regularizer {"
        "  l2_regularizer { weight: 1.0 } } } } } }",
        "model { classifier { feature_extractor { conv_hyperparams { batch_norm {"
        "  decay: 0.5 } } } } }",
        "train_input_reader { shuffle: false }",
        "train_input_reader { synthetic_input_reader { num_examples: 11 } }"}) {
    EXPECT_NE(FingerprintOf(changes), before) << changes;
  }
}

// The mode is that of the server's flag, whatever the config says.
TEST(JobFingerprintTest, TheConfigsModeDoesNotCount) {
  EXPECT_EQ(FingerprintOf("train_config { sync_replicas: true }"), FingerprintOf(""));
}

TEST(JobFingerprintTest, WhatOnlyTheServerOrTheEvaluatorReadsMayChange) {
  const std::string before = FingerprintOf("");
  for (const char* changes :
       {"eval_config { num_examples: 7 }", "eval_input_reader { shuffle: false }",
        "train_config { num_steps: 200 }", "train_input_reader { num_epochs: 3 }",
        "train_config { save_checkpoints_secs: 5 save_checkpoints_steps: 7 max_to_keep: 2 "
        "keep_checkpoint_every_n_hours: 1 }",
        "train_config { fine_tune_checkpoint: 'x' fine_tune_checkpoint_type: 'full' "
        "from_detection_checkpoint: true load_all_detection_checkpoint_vars: true }",
        "train_config { max_staleness: 3 min_contributors: 1 step_deadline_secs: 2 "
        "non_finite_policy: SKIP replica_shares: BY_SPEED }",
        "train_config { gradient_clipping_by_norm: 2 gradient_clipping_by_global_norm: 3 }",
        "train_config { optimizer { use_moving_average: false } }",
        "train_config { optimizer { momentum_optimizer { learning_rate {"
        "  constant_learning_rate { learning_rate: 0.2 } } } } }"}) {
    EXPECT_EQ(FingerprintOf(changes), before) << changes;
  }
}

// Sets the field to some value of its type, or adds one value to a repeated field.
void SetField(const google::protobuf::FieldDescriptor& field, google::protobuf::Message* message) {
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  using Type = google::protobuf::FieldDescriptor;
  switch (field.cpp_type()) {
    case Type::CPPTYPE_MESSAGE:
      if (field.is_repeated()) {
        reflection.AddMessage(message, &field);
      } else {
        reflection.MutableMessage(message, &field);
      }
      return;
    case Type::CPPTYPE_STRING:
      if (field.is_repeated()) return reflection.AddString(message, &field, "x");
      return reflection.SetString(message, &field, "x");
    case Type::CPPTYPE_ENUM:
      return reflection.SetEnum(message, &field, field.default_value_enum());
    case Type::CPPTYPE_BOOL:
      return reflection.SetBool(message, &field, true);
    case Type::CPPTYPE_INT32:
      return reflection.SetInt32(message, &field, 1);
    case Type::CPPTYPE_UINT32:
      return reflection.SetUInt32(message, &field, 1);
    case Type::CPPTYPE_UINT64:
      return reflection.SetUInt64(message, &field, 1);
    case Type::CPPTYPE_FLOAT:
      return reflection.SetFloat(message, &field, 1.0f);
    default:
      FAIL() << "set " << field.name() << " here too";
  }
}

// A server that comes back with another value of a field that is wrongly kept makes all clones
// start anew.
TEST(JobFingerprintTest, EachFieldOfTrainConfigIsTheClonesOrRemoved) {
  const std::set<std::string> of_clones = {"add_regularization_loss",
                                           "batch_size",
                                           "bias_grad_multiplier",
                                           "data_augmentation_options",
                                           "freeze_variables",
                                           "local_steps",
                                           "seed",
                                           "sync_replicas",
                                           "update_trainable_variables"};
  const google::protobuf::Descriptor& train = *config::TrainConfig::descriptor();
  for (int i = 0; i < train.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *train.field(i);
    if (field.options().HasExtension(config::unsupported)) continue;
    if (field.options().HasExtension(config::no_effect)) continue;
    config::TrainEvalPipelineConfig config;
    SetField(field, config.mutable_train_config());
    const config::TrainConfig kept = WithoutServerFields(config).train_config();
    const google::protobuf::Reflection& reflection = *kept.GetReflection();
    const bool is_kept = field.is_repeated() ? reflection.FieldSize(kept, &field) > 0
                                             : reflection.HasField(kept, &field);
    EXPECT_EQ(is_kept, of_clones.count(field.name()) > 0)
        << "train_config." << field.name()
        << ": if clones compute by it, name it in of_clones; otherwise WithoutServerFields removes "
           "it";
  }
}

TEST(JobFingerprintTest, WithLocalStepsClonesComputeByTheOptimizerToo) {
  const std::string local = "train_config { local_steps: 4 } ";
  const std::string before = FingerprintOf(local);
  EXPECT_NE(FingerprintOf(local + "train_config { optimizer { momentum_optimizer { learning_rate {"
                                  "  constant_learning_rate { learning_rate: 0.2 } } } } }"),
            before);
  EXPECT_NE(FingerprintOf(local + "train_config { gradient_clipping_by_norm: 2 }"), before);
  EXPECT_EQ(FingerprintOf(local + "train_config { outer_optimizer { learning_rate: 0.7 } }"),
            before);
}

TEST(DescribeTaskDifferenceTest, NamesTheFirstFieldThatAllTasksNeedAlike) {
  const config::TrainEvalPipelineConfig there = ConfigWith("");
  const struct {
    const char* changes;
    const char* difference;
  } cases[] = {
      {"train_config { seed: 4 }", "modified: train_config.seed: 3 -> 4"},
      {"train_config { optimizer { momentum_optimizer { learning_rate {"
       "  constant_learning_rate { learning_rate: 0.2 } } } } }",
       "modified: train_config.optimizer.momentum_optimizer.learning_rate.constant_learning_rate."
       "learning_rate: 0.1 -> 0.2"},
      {"train_config { gradient_clipping_by_norm: 2 }",
       "modified: train_config.gradient_clipping_by_norm: 0 -> 2"},
      {"train_config { fine_tune_checkpoint: 'x' }",
       "modified: train_config.fine_tune_checkpoint: \"\" -> \"(a path)\""},
      {"model { classifier { label_smoothing: 0.1 } }",
       "modified: model.classifier.label_smoothing: 0 -> 0.1"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(DescribeTaskDifference(there, ConfigWith(c.changes)), c.difference);
  }
}

TEST(DescribeTaskDifferenceTest, OtherFieldsMayDiffer) {
  const config::TrainEvalPipelineConfig there =
      ConfigWith("train_config { fine_tune_checkpoint: 'x' }");
  for (const char* changes :
       {"", "eval_config { num_examples: 7 }", "train_config { num_steps: 200 }",
        "train_config { save_checkpoints_secs: 5 max_staleness: 3 }",
        "train_config { data_augmentation_options { random_horizontal_flip {} } }",
        "train_config { gradient_clipping_by_norm: 0 }",  // as by default
        "train_input_reader { synthetic_input_reader { num_examples: 11 } }"}) {
    const std::string elsewhere = "train_config { fine_tune_checkpoint: 'y' } ";
    EXPECT_EQ(DescribeTaskDifference(there, ConfigWith(elsewhere + changes)), "") << changes;
  }
}

}  // namespace
}  // namespace pushpull

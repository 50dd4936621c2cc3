// Tests the program itself: its exit codes, and what it prints to standard output and standard
// error.
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/base/clock.h"
#include "common/base/file_system.h"
#include "common/checkpoint/retention.h"
#include "common/config/pipeline_config.h"
#include "common/model/model_layout.h"
#include "tests/testkit/ssd_test_config.h"
#include "tests/testkit/test_folder.h"
#include "tests/worker/eval/eval_testing.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EvaluatorMainTest : public ::testing::Test {
 protected:
  EvaluatorMainTest() {
    test_folder_.MakeFolder("train");
    Write("tiny.config", TinyConfig().DebugString());
  }

  void Write(const std::string& name, const std::string& contents) {
    test_folder_.Write(name, contents);
  }
  std::string Command(const std::string& arguments) const {
    return absl::StrCat("exec ", PUSHPULL_BINARY_DIR, "/bin/evaluator ", arguments, " >", folder_,
                        "/stdout 2>", folder_, "/stderr");
  }
  int RunProgram(const std::string& arguments) {
    const int status = std::system(Command(arguments).c_str());
    stdout_ = *ReadWholeFile(files_, folder_ + "/stdout");
    stderr_ = *ReadWholeFile(files_, folder_ + "/stderr");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // Starts the program and returns its process.
  pid_t Start(const std::string& arguments) const {
    const std::string command = Command(arguments);
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    CHECK_GT(child, 0);
    return child;
  }
  // Waits until the program that was started has logged `text`. If it never does, the test times
  // out.
  void WaitForLog(const std::string& text) {
    SteadyClock clock;
    while (true) {
      const auto log = ReadWholeFile(files_, folder_ + "/stderr");
      if (log.ok() && absl::StrContains(*log, text)) return;
      clock.Sleep(absl::Milliseconds(10));
    }
  }
  std::string TrainDirFlag() const { return absl::StrCat("--checkpoint_dir=", folder_, "/train "); }
  std::string ConfigFlag() const {
    return absl::StrCat("--pipeline_config_path=", folder_, "/tiny.config ");
  }

  PosixFileSystem files_;
  const TestFolder test_folder_;
  const std::string& folder_ = test_folder_.path();
  std::string stdout_;
  std::string stderr_;
};

TEST_F(EvaluatorMainTest, ExitsWith64OnBadFlags) {
  EXPECT_EQ(RunProgram(""), 64);
  EXPECT_THAT(stderr_, HasSubstr("--checkpoint_dir"));
  EXPECT_EQ(RunProgram(TrainDirFlag() + "--device=tpu"), 64);
  EXPECT_THAT(stderr_, HasSubstr("--device=tpu, expected cuda or cpu"));
  EXPECT_EQ(RunProgram(TrainDirFlag() + "--gpus=0,1"), 64);
  EXPECT_THAT(stderr_, HasSubstr("--gpus names several GPUs"));
  // Holds with GPUs, without GPUs, and in a build without CUDA.
  EXPECT_EQ(RunProgram(TrainDirFlag() + "--gpus=999"), 64);
  EXPECT_THAT(stderr_, HasSubstr("--gpus=999: "));
  EXPECT_EQ(RunProgram(TrainDirFlag() + "--threads=-1"), 64);
  EXPECT_EQ(RunProgram(TrainDirFlag() + "--checkpoint_dri=x"), 64);
  EXPECT_EQ(RunProgram("--detections=x.json"), 64);
  EXPECT_THAT(stderr_, HasSubstr("--detections needs --pipeline_config_path"));
  EXPECT_EQ(RunProgram(TrainDirFlag() + ConfigFlag() + "--detections=x.json"), 64);
  EXPECT_THAT(stderr_, HasSubstr("--checkpoint_dir and --detections are both given"));
}

TEST_F(EvaluatorMainTest, MeasuresDetectionsOfAFile) {
  EXPECT_EQ(RunProgram(ConfigFlag() + "--detections=x.json"), 65);
  EXPECT_THAT(stderr_, HasSubstr("the model is no detector"));
  config::TrainEvalPipelineConfig config = MakeSsdTestConfig(
      "ssd_mobilenet_v2",
      "num_classes: 3 image_resizer { fixed_shape_resizer { height: 64 width: 64 } }");
  config::TrainEvalPipelineConfig rest;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        train_config {
          batch_size: 2
          num_steps: 1
          optimizer {
            momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.1 } } }
          }
        }
        train_input_reader {
          synthetic_input_reader { num_examples: 4 height: 96 width: 80 num_classes: 3 }
        }
        eval_config { num_examples: 4 }
        eval_input_reader {
          synthetic_input_reader {
            num_examples: 4
            height: 96
            width: 80
            num_classes: 3
            max_objects: 4
          }
        }
      )pb",
      &rest));
  config.MergeFrom(rest);
  Write("tiny.config", config.DebugString());
  const std::string flags = absl::StrCat(ConfigFlag(), "--detections=", folder_, "/found.json");
  EXPECT_EQ(RunProgram(flags), 66);
  EXPECT_THAT(stderr_, HasSubstr("found.json"));
  Write("found.json", "[{}]");
  EXPECT_EQ(RunProgram(flags), 65);
  EXPECT_THAT(stderr_, HasSubstr("found.json, result 0: image_id is nothing"));
  Write("found.json", "[]");
  EXPECT_EQ(RunProgram(flags), 0) << stderr_;
  const nlohmann::json result = nlohmann::json::parse(stdout_);
  EXPECT_EQ(result["examples"], 4);
  EXPECT_EQ(result["PascalBoxes_Precision/mAP@0.5IOU"], 0.0);
}

TEST_F(EvaluatorMainTest, ExitsWith66OnMissingInput) {
  EXPECT_EQ(RunProgram(absl::StrCat("--checkpoint_dir=", folder_, "/none --wait_secs=0")), 66);
  EXPECT_THAT(stderr_, HasSubstr("/none does not exist"));
  EXPECT_EQ(RunProgram(TrainDirFlag() + "--wait_secs=0"), 66);
  EXPECT_THAT(stderr_, HasSubstr("/train/pipeline.config does not exist"));
  EXPECT_EQ(RunProgram(TrainDirFlag() + "--pipeline_config_path=/none.config"), 66);
  EXPECT_THAT(stderr_, HasSubstr("/none.config"));
  EXPECT_EQ(RunProgram(absl::StrCat("--checkpoint_dir=", folder_, "/none ", ConfigFlag(),
                                    "--wait_secs=0")),
            66);
  EXPECT_EQ(RunProgram(TrainDirFlag() + ConfigFlag() + "--run_once --wait_secs=0"), 66);
  EXPECT_THAT(stderr_, HasSubstr("there is no checkpoint in"));
}

// The default of --wait_secs is longer than the timeout of a test.
TEST_F(EvaluatorMainTest, DoesNotWaitForAFileToBecomeAFolder) {
  Write("file", "");
  for (const char* path : {"/file", "/file/run"}) {
    for (const std::string& config : {std::string(), ConfigFlag()}) {
      const std::string flag = absl::StrCat("--checkpoint_dir=", folder_, path, " ");
      EXPECT_EQ(RunProgram(flag + config), 65) << path;
      EXPECT_THAT(stderr_, HasSubstr("/file is a file, expected a folder"));
    }
  }
}

TEST_F(EvaluatorMainTest, WaitsForTheTargetOfALink) {
  std::filesystem::create_symlink(folder_ + "/away", folder_ + "/link");
  const std::string flag = absl::StrCat("--checkpoint_dir=", folder_, "/link --wait_secs=0 ");
  EXPECT_EQ(RunProgram(flag + ConfigFlag()), 66);
  EXPECT_THAT(stderr_, HasSubstr("/link does not exist"));
}

TEST_F(EvaluatorMainTest, ExitsWith65OnABadConfig) {
  Write("tiny.config", "model { classifyer { } }");
  EXPECT_EQ(RunProgram(TrainDirFlag() + ConfigFlag()), 65);
  EXPECT_THAT(stderr_, HasSubstr("classifyer"));
}

TEST_F(EvaluatorMainTest, FollowsARunAndPrintsTheLastResult) {
  const VariableLayout layout = BuildVariableLayout(TinyConfig());
  // The server writes the config into the train_dir.
  Write("train/pipeline.config", TinyConfig().DebugString());
  ASSERT_EQ(PublishTiny(files_, folder_ + "/train", layout, {1, 100, 1, 0, false}),
            absl::OkStatus());
  ASSERT_EQ(PublishTiny(files_, folder_ + "/train", layout, {1, 200, 2, 0, true}),
            absl::OkStatus());
  EXPECT_EQ(RunProgram(TrainDirFlag() + "--device=cpu"), 0) << stderr_;
  EXPECT_THAT(stderr_, Not(HasSubstr("that this is meant")));  // the CPU was requested
  EXPECT_EQ(stdout_, "");
  EXPECT_THAT(stderr_, HasSubstr("reading the 24 images that are evaluated\n"));
  EXPECT_THAT(stderr_, HasSubstr(" evaluated: 1\n"));
  const auto best = ReadBestCheckpoint(files_, folder_ + "/train/eval");
  ASSERT_TRUE(best.ok() && best->has_value()) << best.status();
  EXPECT_THAT(stderr_, HasSubstr(absl::StrFormat("best accuracy: %.4f at step %d", (*best)->value,
                                                 (*best)->step)));
  // A single evaluation leaves the best checkpoint of a running evaluator alone.
  const std::string best_file = folder_ + "/train/eval/best_checkpoint";
  ASSERT_EQ(files_.RemoveFile(best_file), absl::OkStatus());
  EXPECT_EQ(RunProgram(TrainDirFlag() + "--run_once"), 0) << stderr_;
  EXPECT_TRUE(absl::IsNotFound(files_.GetInfo(best_file).status()));
  EXPECT_THAT(stderr_, Not(HasSubstr("best accuracy")));
  const nlohmann::json result = nlohmann::json::parse(stdout_);
  EXPECT_EQ(result["step"], 200);
  EXPECT_EQ(result["examples"], 24);
}

TEST_F(EvaluatorMainTest, NamesTheFlagOfAFolderThatCannotBeUsed) {
  Write("other", "");
  // It does not wait for a checkpoint first.
  EXPECT_EQ(RunProgram(absl::StrCat(TrainDirFlag(), ConfigFlag(), "--run_once --wait_secs=0 ",
                                    "--eval_dir=", folder_, "/other")),
            65);
  EXPECT_THAT(stderr_, HasSubstr("/other is neither a folder nor a link to one; --eval_dir"));
}

// A server that is started again may write another config, whose network has the same variables.
TEST_F(EvaluatorMainTest, FollowsTheConfigOfTheTrainDir) {
  config::TrainEvalPipelineConfig config = TinyConfig();
  const VariableLayout layout = BuildVariableLayout(config);
  Write("train/pipeline.config", config.DebugString());
  const std::string train_dir = folder_ + "/train";
  ASSERT_EQ(PublishTiny(files_, train_dir, layout, {1, 100, 1, 0, false}), absl::OkStatus());
  const pid_t child = Start(TrainDirFlag());
  WaitForLog("step 100: accuracy");
  config.mutable_model()
      ->mutable_classifier()
      ->mutable_image_resizer()
      ->mutable_fixed_shape_resizer()
      ->set_height(64);
  ASSERT_EQ(WriteFileAtomically(files_, train_dir + "/pipeline.config", config.DebugString()),
            absl::OkStatus());
  ASSERT_EQ(PublishTiny(files_, train_dir, layout, {1, 200, 2, 0, true}), absl::OkStatus());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const std::string log = *ReadWholeFile(files_, folder_ + "/stderr");
  EXPECT_THAT(log, HasSubstr("fixed_shape_resizer.height: 32 -> 64"));
  EXPECT_EQ(RunProgram(TrainDirFlag() + "--run_once"), 0) << stderr_;
  const nlohmann::json fresh = nlohmann::json::parse(stdout_);
  EXPECT_THAT(log, HasSubstr(absl::StrFormat("step 200: accuracy %.4f, accuracy_top5 %.4f, loss "
                                             "%.4f over 24 examples",
                                             fresh["accuracy"].get<double>(),
                                             fresh["accuracy_top5"].get<double>(),
                                             fresh["loss"].get<double>())));
}

TEST_F(EvaluatorMainTest, ExitsWith143OnSigterm) {
  const pid_t child = Start(TrainDirFlag() + ConfigFlag());
  WaitForLog("waiting for a checkpoint");
  ASSERT_EQ(kill(child, SIGTERM), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 143);
}

}  // namespace
}  // namespace pushpull

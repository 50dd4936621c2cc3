#include "worker/data/class_names.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ClassNamesTest : public testing::Test {
 protected:
  ClassNamesTest() {
    for (const char* name : {"photos/dog/1.png", "photos/cat/1.png"}) folder_.Write(name, "");
    folder_.Write("two.pbtxt", "item { id: 1 name: 'ant' } item { id: 3 name: 'bee' }");
    folder_.Write("other.pbtxt", "item { id: 1 name: 'wasp' }");
    config_.mutable_model()->mutable_classifier()->set_num_classes(2);
    reader_ = config_.add_eval_input_reader();
  }
  std::vector<std::string> Names(const std::string& label_map = "") {
    const auto names =
        FindClassNames(files_, config_, {.label_map = label_map, .data_dir = folder_.path()});
    EXPECT_TRUE(names.ok()) << names.status();
    return names.value_or(std::vector<std::string>());
  }

  const TestFolder folder_;
  PosixFileSystem files_;
  config::TrainEvalPipelineConfig config_;
  config::InputReader* reader_;
};

TEST_F(ClassNamesTest, ReadsTheLabelMapOfTheConfigAndKeepsItsGaps) {
  reader_->set_label_map_path("two.pbtxt");
  EXPECT_THAT(Names(), ElementsAre("ant", "", "bee"));
  EXPECT_THAT(Names(absl::StrCat(folder_.path(), "/other.pbtxt")), ElementsAre("wasp"));
}

TEST_F(ClassNamesTest, TakesTheNamesOfClassFolders) {
  reader_->mutable_image_folder_input_reader()->set_path("photos");
  EXPECT_THAT(Names(), ElementsAre("cat", "dog"));
  EXPECT_THAT(Names(absl::StrCat(folder_.path(), "/other.pbtxt")), ElementsAre("wasp"));
}

// The labels have the meaning that they had in training.
TEST_F(ClassNamesTest, TakesTheFoldersOfTheTrainingDataIfTheyAreThere) {
  for (const char* name : {"train/ant/1.png", "train/cat/1.png"}) folder_.Write(name, "");
  reader_->mutable_image_folder_input_reader()->set_path("photos");
  config::InputReader& train = *config_.mutable_train_input_reader();
  train.mutable_image_folder_input_reader()->set_path("train");
  EXPECT_THAT(Names(), ElementsAre("ant", "cat"));
  train.mutable_image_folder_input_reader()->set_path("absent");
  EXPECT_THAT(Names(), ElementsAre("cat", "dog"));
}

TEST_F(ClassNamesTest, FindsTheFirstClassFolderThatDiffersFromTheTrainingData) {
  for (const char* name : {"train/Dog/1.png", "train/cat/1.png", "more/cat/1", "more/dog/1"}) {
    folder_.Write(name, "");
  }
  folder_.Write("more/fox/1", "");
  reader_->mutable_image_folder_input_reader()->set_path("photos");
  config::InputReader& train = *config_.mutable_train_input_reader();
  std::vector<std::string> eval_names = {"cat", "dog"};
  const auto check = [&](const std::string& path) {
    train.mutable_image_folder_input_reader()->set_path(path);
    return CheckClassFolders(config_, folder_.path(), eval_names);
  };
  EXPECT_TRUE(check("photos").ok());
  EXPECT_TRUE(check("absent").ok());
  EXPECT_EQ(check("train").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(check("train").message()),
      AllOf(HasSubstr("class 0 is \"Dog\" in "), HasSubstr("/train, which train_input_reader"),
            HasSubstr("but \"cat\" in "), HasSubstr("/photos, which eval_input_reader")));
  EXPECT_THAT(std::string(check("more").message()),
              AllOf(HasSubstr("class 2 is \"fox\""), HasSubstr("but no folder in ")));
  eval_names = {"cat", "dog", "emu"};
  EXPECT_THAT(std::string(check("photos").message()),
              AllOf(HasSubstr("class 2 is no folder in "), HasSubstr("but \"emu\" in ")));
  train.mutable_idx_input_reader();
  EXPECT_TRUE(CheckClassFolders(config_, folder_.path(), eval_names).ok());
  // The folders of training alone say nothing about data of another kind.
  reader_->mutable_idx_input_reader();
  EXPECT_TRUE(check("photos").ok());
  config_.clear_eval_input_reader();
  EXPECT_TRUE(check("photos").ok());
}

TEST_F(ClassNamesTest, TheLabelMapsOfTrainingAndEvaluationGiveANameOneId) {
  folder_.Write("train.pbtxt",
                "item { id: 1 name: 'n1' display_name: 'ant' } item { id: 2 name: 'b' }");
  folder_.Write("more.pbtxt", "item { id: 1 name: 'ant' } item { id: 3 name: 'cat' }");
  folder_.Write("other.pbtxt", "item { id: 1 name: 'b' } item { id: 2 name: 'n1' }");
  config_.mutable_train_input_reader()->set_label_map_path("train.pbtxt");
  const auto check = [&](const std::string& path) {
    reader_->set_label_map_path(path);
    return CheckLabelMaps(files_, config_, folder_.path());
  };
  for (const char* path : {"", "train.pbtxt", "more.pbtxt", "absent.pbtxt"}) {
    EXPECT_EQ(check(path), absl::OkStatus()) << path;
  }
  const absl::Status other = check("other.pbtxt");
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(other.message()),
      AllOf(HasSubstr("class \"b\" has the id 2 in "), HasSubstr("/train.pbtxt, which train_"),
            HasSubstr("but 1 in "), HasSubstr("/other.pbtxt, which eval_")));
  config_.mutable_train_input_reader()->set_label_map_path("absent.pbtxt");
  EXPECT_EQ(check("other.pbtxt"), absl::OkStatus());
  config_.clear_eval_input_reader();
  EXPECT_EQ(CheckLabelMaps(files_, config_, folder_.path()), absl::OkStatus());
}

TEST_F(ClassNamesTest, HasNoNamesIfTheFoldersAreAbsentOrDoNotFitTheModel) {
  reader_->mutable_image_folder_input_reader()->set_path("absent");
  EXPECT_THAT(Names(), IsEmpty());
  reader_->mutable_image_folder_input_reader()->set_path("photos");
  config_.mutable_model()->mutable_classifier()->set_num_classes(3);
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(ClassNamesTest, HasNoNamesWithoutALabelMapOrFolders) {
  EXPECT_THAT(Names(), IsEmpty());
  config_.clear_eval_input_reader();
  EXPECT_THAT(Names(), IsEmpty());
}

// The data set need not be on the machine that applies the model, but a file that the user names
// has to be there.
TEST_F(ClassNamesTest, ALabelMapThatIsNotThereIsAnErrorOnlyIfTheUserNamesIt) {
  reader_->set_label_map_path("absent.pbtxt");
  EXPECT_THAT(Names(), IsEmpty());
  folder_.Write("bad.pbtxt", "item { id: 0 name: 'ant' }");
  reader_->set_label_map_path("bad.pbtxt");
  EXPECT_THAT(Names(), IsEmpty());
  const auto names =
      FindClassNames(files_, config_,
                     {.label_map = absl::StrCat(folder_.path(), "/absent.pbtxt"), .data_dir = ""});
  EXPECT_EQ(names.status().code(), absl::StatusCode::kNotFound) << names.status();
}

}  // namespace
}  // namespace pushpull

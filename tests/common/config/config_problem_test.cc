#include "common/config/config_problem.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/config/reader_checks.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ConfigProblemTest, ProblemsThatMayPassAreMarkedIfThereAreNoOthers) {
  const ConfigProblem passing{"a", "x", "y", "", false, true};
  const ConfigProblem missing{"b", "x", "y", "", true};
  const ConfigProblem lasting{"c", "x", "y", ""};
  const absl::Status status = ProblemsToStatus("job.config", {passing, passing});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsPassing(status));
  const absl::Status not_found = ProblemsToStatus("job.config", {passing, missing});
  EXPECT_EQ(not_found.code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(IsPassing(not_found));
  EXPECT_EQ(ProblemsToStatus("job.config", {passing, missing, lasting}).code(),
            absl::StatusCode::kInvalidArgument);
}

// The system refuses a name of this length with ENAMETOOLONG.
TEST(ConfigProblemTest, AnInputThatCannotBeLookedAtIsNotMissing) {
  config::InputReader reader;
  reader.mutable_image_folder_input_reader()->set_path("/" + std::string(300, 'x'));
  FieldChecker checker;
  ReaderFiles files;
  files.must_exist = true;
  config::DetectionModel model;
  model.mutable_classifier();
  CheckReader(reader, "train_input_reader", model, files, &checker);
  ASSERT_EQ(checker.problems().size(), 1u);
  EXPECT_FALSE(checker.problems()[0].missing_input);
  EXPECT_FALSE(checker.problems()[0].may_pass);
  EXPECT_THAT(ToString(checker.problems()[0]),
              AllOf(HasSubstr("train_input_reader.image_folder_input_reader.path"),
                    HasSubstr("File name too long"), Not(HasSubstr("does not exist"))));
}

}  // namespace
}  // namespace pushpull

// Tests what --check_cluster compares between a ps task and task 0. server_test.cc tests that the
// start of a task compares the same.
#include "ps_server/runtime/task_agreement.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/file_system.h"
#include "common/model/variable_entries.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kExternal[] = "model { external { name: 'mine' } }";

// Returns what task 0 with this job tells.
ps::JobReply ToldOf(const JobSpec& job) {
  ps::JobReply told;
  told.set_run_id("0123456789abcdef");
  told.set_epoch(3);
  told.set_tasks(job.sharding.tasks());
  told.set_pipeline_config(job.config_text);
  told.set_layout_signature(job.layout.signature());
  for (const ps::VariableEntry& entry : VariableEntries(job.layout)) {
    *told.add_variables() = entry;
  }
  return told;
}

class TaskAgreementTest : public ::testing::Test {
 protected:
  TaskAgreementTest() {
    settings_.config = MakeTinyConfig("");
    settings_.tasks = 2;
    settings_.train_dir = "/train";
    EXPECT_TRUE(files_.MakeDirectory("/train").ok());
    EXPECT_TRUE(WriteFileAtomically(files_, "/train/EPOCH", "3\n").ok());
    told_ = ToldOf(JobSpec::Create(settings_.config, settings_.sync, settings_.tasks));
  }
  std::string Difference() { return DescribeDisagreement(told_, settings_, files_); }

  MemoryFileSystem files_;
  TaskSettings settings_;
  ps::JobReply told_;
};

TEST_F(TaskAgreementTest, TheSameIsNoDifference) { EXPECT_EQ(Difference(), ""); }

TEST_F(TaskAgreementTest, NamesAnotherModelOrNumberOfTasks) {
  settings_.tasks = 3;
  EXPECT_THAT(Difference(), HasSubstr("has 2 tasks, this task 1 was told 3"));
  settings_.tasks = 2;
  settings_.config.mutable_model()->mutable_classifier()->set_num_classes(77);
  EXPECT_THAT(Difference(), HasSubstr("trains another model"));
}

TEST_F(TaskAgreementTest, NamesAnotherSettingOrMode) {
  settings_.config.mutable_train_config()->set_seed(77);
  EXPECT_THAT(Difference(), AllOf(HasSubstr("trains with other settings"), HasSubstr("-> 77")));
  settings_.config = MakeTinyConfig("");
  settings_.sync = false;
  EXPECT_THAT(Difference(), HasSubstr("sync_replicas: true -> false"));
}

TEST_F(TaskAgreementTest, NamesAnotherTrainDir) {
  settings_.train_dir = "/elsewhere";
  EXPECT_THAT(Difference(), HasSubstr("/elsewhere of ps task 1 has no EPOCH"));
  told_.set_epoch(0);
  EXPECT_EQ(Difference(), "") << "task 0 has not begun an epoch";
  told_.set_epoch(3);
  settings_.train_dir = "";
  EXPECT_EQ(Difference(), "") << "no train_dir was given";
  settings_.train_dir = "/train";
  ASSERT_TRUE(WriteFileAtomically(files_, "/train/run_id", std::string(32, 'a') + "\n").ok());
  EXPECT_THAT(Difference(), HasSubstr("belongs to another run"));
}

TEST_F(TaskAgreementTest, ComparesTheSettingsOfAnExternalModel) {
  settings_.config = MakeTinyConfig("", kExternal);
  const JobSpec declared = JobSpec::Create(MakeTinyConfig(""), settings_.sync, settings_.tasks);
  const absl::StatusOr<JobSpec> job =
      JobSpec::CreateExternal(settings_.config, settings_.sync, settings_.tasks, declared.layout);
  ASSERT_TRUE(job.ok()) << job.status();
  told_ = ToldOf(*job);
  EXPECT_EQ(Difference(), "");
  settings_.config.mutable_train_config()->set_seed(77);
  EXPECT_THAT(Difference(), HasSubstr("-> 77"));
}

TEST_F(TaskAgreementTest, SaysThatTheConfigOfTask0CannotBeRead) {
  told_.set_pipeline_config("model {");
  EXPECT_THAT(Difference(), HasSubstr("has a config that this program cannot read"));
}

}  // namespace
}  // namespace pushpull

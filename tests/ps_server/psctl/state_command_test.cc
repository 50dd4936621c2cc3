#include "ps_server/psctl/state_command.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/cli/exit_codes.h"
#include "ps_server/store/variable_store.h"
#include "tests/testkit/store/state_dir_test_util.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

class StateCommandTest : public StateDirTest {
 protected:
  // Opens a store with version 7 of a run whose train_dir exists.
  std::unique_ptr<VariableStore> OpenStore(const std::string& name) {
    auto store = Open(OptionsOf(name, "run"));
    FillVersion(store.get(), 7, 1, "");
    return store;
  }
  absl::StatusOr<std::string> Run(const std::vector<std::string>& words,
                                  const std::string& output = "text") {
    const auto command = ParsePsctlCommand(words, {.output = output});
    EXPECT_TRUE(command.ok()) << command.status();
    return RunStateCommand(*command, files_, dir_.path());
  }
};

TEST_F(StateCommandTest, ListsStateFiles) {
  EXPECT_THAT(*Run({"state", "list"}), HasSubstr("no mapped state in " + dir_.path()));
  const auto running = OpenStore("running");
  OpenStore("killed");
  const std::string table = *Run({"state", "list"});
  EXPECT_THAT(table, HasSubstr(dir_.path() + "/killed"));
  EXPECT_THAT(table, HasSubstr("of " + TrainDir("run")));
  EXPECT_THAT(table, HasSubstr("by process " + std::to_string(getpid())));
  const nlohmann::json files = nlohmann::json::parse(*Run({"state", "list"}, "json"));
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0]["use"], "resumable");
  EXPECT_EQ(files[0]["newest_version"], 7);
  EXPECT_EQ(files[1]["use"], "in use");
}

TEST_F(StateCommandTest, AFolderThatIsNamedMustExist) {
  OpenStore("killed");
  const std::string missing = dir_.path() + "/nope";
  for (const char* word : {"list", "clean"}) {
    SCOPED_TRACE(word);
    const auto command = ParsePsctlCommand({"state", word}, {.state_dir = missing});
    ASSERT_TRUE(command.ok()) << command.status();
    const auto refused = RunStateCommand(*command, files_, dir_.path());
    EXPECT_EQ(ExitCodeOf(refused.status()), kExitMissingInput) << refused.status();
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(missing));
  }
  const auto named = ParsePsctlCommand({"state", "list"}, {.state_dir = dir_.path()});
  EXPECT_THAT(*RunStateCommand(*named, files_, missing), HasSubstr("killed"));
  const auto list = ParsePsctlCommand({"state", "list"}, {});
  EXPECT_THAT(*RunStateCommand(*list, files_, missing), HasSubstr("no mapped state in " + missing))
      << "no server has run yet";
}

TEST_F(StateCommandTest, CleanKeepsFilesThatAServerWouldUse) {
  OpenStore("killed");
  OpenStore("old.aside");
  EXPECT_THAT(*Run({"state", "clean"}), HasSubstr("removed 1 files"));
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/killed"));
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + "/old.aside"));
  EXPECT_THAT(*Run({"state", "clean", "killed"}), HasSubstr("killed"));
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + "/killed"));
}

TEST_F(StateCommandTest, CleanTakesThePathsThatListShows) {
  const auto running = OpenStore("running");
  OpenStore("killed");
  for (const auto& file : nlohmann::json::parse(*Run({"state", "list"}, "json"))) {
    const std::string path = file["path"];
    const auto cleaned = Run({"state", "clean", path});
    if (file["use"] == "in use") {
      EXPECT_TRUE(absl::IsFailedPrecondition(cleaned.status())) << cleaned.status();
    } else {
      ASSERT_TRUE(cleaned.ok()) << cleaned.status();
      EXPECT_THAT(*cleaned, HasSubstr(path));
    }
    EXPECT_EQ(std::filesystem::exists(path), file["use"] == "in use");
  }
  const auto elsewhere = Run({"state", "clean", TrainDir("run") + "/running"});
  EXPECT_TRUE(absl::IsNotFound(elsewhere.status())) << elsewhere.status();
}

TEST_F(StateCommandTest, CleanWithAWrongNameRemovesNothing) {
  const auto running = OpenStore("running");
  OpenStore("old.aside");
  EXPECT_TRUE(absl::IsNotFound(Run({"state", "clean", "none"}).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Run({"state", "clean", "running"}).status()));
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/old.aside"));
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/running"));
}

}  // namespace
}  // namespace pushpull

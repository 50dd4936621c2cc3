#include "common/cluster/slurm_environment.h"

#include <map>
#include <random>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

// Rank 3 of five on two nodes: 2 ps tasks, 2 workers, and the evaluator.
Environment Example() {
  return {{"SLURM_JOB_ID", "42"},          {"SLURM_PROCID", "3"},
          {"SLURM_NTASKS", "5"},           {"SLURM_NODEID", "1"},
          {"SLURM_LOCALID", "0"},          {"SLURM_JOB_NODELIST", "gnode[08-09]"},
          {"SLURM_TASKS_PER_NODE", "3,2"}, {"SLURMD_NODENAME", "gnode09"},
          {"PUSHPULL_PS_TASKS", "2"},      {"PUSHPULL_WORKERS", "2"}};
}

Environment With(Environment environment, const std::map<std::string, std::string>& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}

TEST(SlurmEnvironmentTest, ReadsAWorker) {
  const auto view = ReadSlurmEnvironment(Example());
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->role->value, Role::kWorker);
  EXPECT_EQ(view->role->source, "SLURM_PROCID");
  EXPECT_EQ(view->index->value, 1);
  EXPECT_THAT(view->ps->value, ElementsAre("gnode08:2222", "gnode08:2223"));
  EXPECT_EQ(view->ps->source, "SLURM_JOB_NODELIST");
  EXPECT_EQ(view->num_ps->value, 2);
  EXPECT_EQ(view->num_workers->value, 2);
  EXPECT_EQ(view->num_workers->source, "PUSHPULL_WORKERS");
}

TEST(SlurmEnvironmentTest, ReadsTheOtherRoles) {
  const auto ps = ReadSlurmEnvironment(With(
      Example(), {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}, {"PUSHPULL_PS_PORT", "7000"}}));
  ASSERT_TRUE(ps.ok()) << ps.status();
  EXPECT_EQ(ps->role->value, Role::kPs);
  EXPECT_EQ(ps->index->value, 0);
  EXPECT_THAT(ps->ps->value, ElementsAre("gnode08:7000", "gnode08:7001"));
  const auto evaluator =
      ReadSlurmEnvironment(With(Example(), {{"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "1"}}));
  ASSERT_TRUE(evaluator.ok()) << evaluator.status();
  EXPECT_EQ(evaluator->role->value, Role::kEvaluator);
  EXPECT_FALSE(evaluator->index.has_value());
}

TEST(SlurmEnvironmentTest, TheListsOfTheStepOverrideThoseOfTheJob) {
  const auto view = ReadSlurmEnvironment(With(Example(), {{"SLURM_JOB_NODELIST", "gnode[01-09]"},
                                                          {"SLURM_TASKS_PER_NODE", "8(x9)"},
                                                          {"SLURM_STEP_NODELIST", "gnode[03,07]"},
                                                          {"SLURM_STEP_TASKS_PER_NODE", "3,2"}}));
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_THAT(view->ps->value, ElementsAre("gnode03:2222", "gnode03:2223"));
  EXPECT_EQ(view->ps->source, "SLURM_STEP_NODELIST");
}

TEST(SlurmEnvironmentTest, SpreadsRanksEvenlyWithoutCounts) {
  Environment environment = With(Example(), {{"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "1"}});
  environment.erase("SLURM_TASKS_PER_NODE");
  const auto view = ReadSlurmEnvironment(environment);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->index->value, 1);
  environment["SLURM_NTASKS"] = "5";
  EXPECT_TRUE(absl::StrContains(ReadSlurmEnvironment(environment).status().message(),
                                "SLURM_TASKS_PER_NODE"));
}

TEST(SlurmEnvironmentTest, FindsNoClusterWithoutOurVariables) {
  EXPECT_FALSE(ReadSlurmEnvironment({})->role.has_value());
  EXPECT_EQ(ReadSlurmEnvironment({})->gaps, "");
  Environment environment = Example();
  environment.erase("PUSHPULL_PS_TASKS");
  const auto view = ReadSlurmEnvironment(environment);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_FALSE(view->role.has_value());
  EXPECT_FALSE(view->ps.has_value());
  EXPECT_TRUE(absl::StrContains(view->gaps, "PUSHPULL_PS_TASKS")) << view->gaps;
}

TEST(SlurmEnvironmentTest, EachRefusalNamesItsVariable) {
  struct Case {
    const char* variable;
    const char* value;  // null: unset
    const char* named;
  };
  for (const Case& c :
       std::vector<Case>{{"SLURM_NTASKS", nullptr, "SLURM_NTASKS is not set"},
                         {"SLURM_NTASKS", "five", "SLURM_NTASKS=five"},
                         {"SLURM_NTASKS", "6", "SLURM_NTASKS=6"},
                         {"SLURM_NTASKS", "3", "SLURM_PROCID=3"},
                         {"SLURM_PROCID", nullptr, "SLURM_PROCID is not set"},
                         {"SLURM_PROCID", "5", "SLURM_PROCID=5"},
                         {"SLURM_PROCID", "-1", "SLURM_PROCID=-1"},
                         {"SLURM_NODEID", "0", "SLURM_NODEID=0"},
                         {"SLURM_NODEID", "x", "SLURM_NODEID=x"},
                         {"SLURM_LOCALID", "1", "SLURM_LOCALID=1"},
                         {"SLURM_JOB_NODELIST", nullptr, "SLURM_JOB_NODELIST is not set"},
                         {"SLURM_JOB_NODELIST", "gnode[08-", "SLURM_JOB_NODELIST="},
                         {"SLURM_JOB_NODELIST", "gnode08", "SLURM_TASKS_PER_NODE="},
                         {"SLURM_TASKS_PER_NODE", "3,1", "SLURM_TASKS_PER_NODE=3,1"},
                         {"SLURM_TASKS_PER_NODE", "3;2", "SLURM_TASKS_PER_NODE="},
                         {"SLURM_TASKS_PER_NODE", "4,1", "SLURM_NODEID=1"},
                         {"PUSHPULL_PS_TASKS", "0", "PUSHPULL_PS_TASKS=0"},
                         {"PUSHPULL_PS_TASKS", "5", "PUSHPULL_PS_TASKS=5"},
                         {"PUSHPULL_WORKERS", nullptr, "PUSHPULL_WORKERS is not set"},
                         {"PUSHPULL_WORKERS", "1", "PUSHPULL_WORKERS=1"},
                         {"PUSHPULL_PS_PORT", "http", "PUSHPULL_PS_PORT=http"},
                         {"PUSHPULL_PS_PORT", "65535", "PUSHPULL_PS_PORT=65535"}}) {
    Environment environment = Example();
    if (c.value == nullptr) {
      environment.erase(c.variable);
    } else {
      environment[c.variable] = c.value;
    }
    const absl::Status status = ReadSlurmEnvironment(environment).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << c.variable << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), c.named)) << c.variable << ": " << status;
  }
}

// With a cyclic layout, Slurm places some ranks on other nodes than the block layout does. Those
// ranks notice it.
TEST(SlurmEnvironmentTest, RefusesACyclicLayout) {
  int refused = 0;
  for (int rank = 0; rank < 5; ++rank) {
    const auto view =
        ReadSlurmEnvironment(With(Example(), {{"SLURM_PROCID", absl::StrCat(rank)},
                                              {"SLURM_NODEID", absl::StrCat(rank % 2)},
                                              {"SLURM_LOCALID", absl::StrCat(rank / 2)}}));
    if (view.ok()) continue;
    ++refused;
    EXPECT_TRUE(absl::StrContains(view.status().message(), "--distribution=block"));
  }
  EXPECT_EQ(refused, 4);  // rank 0 is on the same node in both layouts
}

// Over random layouts, all ranks agree on the addresses, each index of each role occurs once, no
// two ps tasks share an address, and the address of a ps task is on the task's node.
TEST(SlurmEnvironmentTest, AllRanksAgree) {
  std::mt19937 random(5);
  const auto draw = [&random](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<int> tasks_per_node;
    std::vector<int> numbers;
    int total = 0;
    for (int node = draw(1, 5), number = draw(0, 9); node > 0; --node, number += draw(1, 5)) {
      tasks_per_node.push_back(draw(1, 4));
      numbers.push_back(number);
      total += tasks_per_node.back();
    }
    if (total < 2) continue;
    const bool evaluator = total > 2 && draw(0, 1) == 1;
    const int num_ps = draw(1, total - 1 - evaluator);
    const Environment common = {
        {"SLURM_JOB_ID", "1"},
        {"SLURM_NTASKS", absl::StrCat(total)},
        {"SLURM_JOB_NODELIST", absl::StrCat("n[", absl::StrJoin(numbers, ","), "]")},
        {"SLURM_TASKS_PER_NODE", absl::StrJoin(tasks_per_node, ",")},
        {"PUSHPULL_PS_TASKS", absl::StrCat(num_ps)},
        {"PUSHPULL_WORKERS", absl::StrCat(total - num_ps - evaluator)}};
    std::vector<std::string> addresses;
    std::multiset<std::pair<Role, int>> seen;
    int rank = 0;
    for (size_t node = 0; node < tasks_per_node.size(); ++node) {
      for (int local = 0; local < tasks_per_node[node]; ++local, ++rank) {
        const auto view =
            ReadSlurmEnvironment(With(common, {{"SLURM_PROCID", absl::StrCat(rank)},
                                               {"SLURM_NODEID", absl::StrCat(node)},
                                               {"SLURM_LOCALID", absl::StrCat(local)}}));
        ASSERT_TRUE(view.ok()) << view.status();
        if (rank == 0) addresses = view->ps->value;
        ASSERT_EQ(view->ps->value, addresses);
        seen.emplace(view->role->value, view->index.has_value() ? view->index->value : 0);
        if (view->role->value == Role::kPs) {
          EXPECT_EQ(addresses[rank], absl::StrCat("n", numbers[node], ":", 2222 + local));
        }
      }
    }
    const std::set<std::string> distinct(addresses.begin(), addresses.end());
    EXPECT_EQ(distinct.size(), num_ps);
    EXPECT_EQ((std::set<std::pair<Role, int>>(seen.begin(), seen.end()).size()), total);
    EXPECT_EQ(seen.count({Role::kEvaluator, 0}), evaluator ? 1 : 0);
  }
}

}  // namespace
}  // namespace pushpull

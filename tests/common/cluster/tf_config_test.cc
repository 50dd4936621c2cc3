#include "common/cluster/tf_config.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

ClusterView View(Role role, const std::string& text) {
  const auto view = ReadTfConfig(role, text);
  EXPECT_TRUE(view.ok()) << view.status();
  return view.value_or(ClusterView());
}

TEST(TfConfigTest, ChiefIsWorkerZero) {
  const ClusterView view = View(Role::kWorker, R"({
    "cluster": {"ps": ["p0:2222", "p1:2222"], "worker": ["w0:2222", "w1:2222"], "master": ["m:2222"],
                "evaluator": ["e:2222"]},
    "task": {"type": "worker", "index": 1}, "environment": "cloud"})");
  EXPECT_THAT(view.ps->value, ElementsAre("p0:2222", "p1:2222"));
  EXPECT_EQ(view.ps->source, "TF_CONFIG");
  EXPECT_EQ(view.num_workers->value, 3);
  EXPECT_EQ(view.index->value, 2);
  EXPECT_EQ(view.role->value, Role::kWorker);
}

TEST(TfConfigTest, ChiefAndMasterMeanTheSame) {
  for (const std::string name : {"chief", "master"}) {
    for (const std::string type : {"chief", "master"}) {
      const ClusterView view =
          View(Role::kWorker, R"({"cluster": {"ps": ["p:1"], ")" + name +
                                  R"(": ["m:1"]}, "task": {"type": ")" + type + R"("}})");
      EXPECT_EQ(view.index->value, 0);
      EXPECT_EQ(view.num_workers->value, 1);
    }
  }
}

TEST(TfConfigTest, WithoutATaskNeitherRoleNorIndexIsKnown) {
  const ClusterView view =
      View(Role::kWorker, R"({"cluster": {"ps": ["p:1"], "worker": ["a:1", "b:1"]}})");
  EXPECT_FALSE(view.role.has_value());
  EXPECT_FALSE(view.index.has_value());
  EXPECT_EQ(view.num_workers->value, 2);
}

// The form that TFJob's controller writes with enableDynamicWorker.
TEST(TfConfigTest, SparseWorkerSeesAllPsAndItself) {
  const ClusterView view = View(
      Role::kWorker,
      R"({"sparseCluster": {"worker": {"3": "w3:1"}, "ps": ["p0:1", "p1:1"]}, "task": {"type": "worker", "index": 3}})");
  EXPECT_THAT(view.ps->value, ElementsAre("p0:1", "p1:1"));
  EXPECT_EQ(view.index->value, 3);
  EXPECT_FALSE(view.num_workers.has_value());
  EXPECT_THAT(view.gaps, HasSubstr("sparse form"));
}

TEST(TfConfigTest, SparsePsSeesItselfAlone) {
  const ClusterView view = View(
      Role::kPs,
      R"({"sparseCluster": {"worker": {}, "ps": ["p1:1"]}, "task": {"type": "ps", "index": 1}})");
  EXPECT_EQ(view.index->value, 1);
  EXPECT_EQ(view.own_address->value, "p1:1");
  EXPECT_FALSE(view.ps.has_value());
  EXPECT_FALSE(view.num_ps.has_value());
  EXPECT_THAT(view.gaps, HasSubstr("sees itself alone"));
}

TEST(TfConfigTest, ObjectUnderClusterIsSparseToo) {
  const ClusterView worker = View(
      Role::kWorker,
      R"({"cluster": {"ps": ["p:1"], "worker": {"3": "w3:1"}}, "task": {"type": "worker", "index": "3"}})");
  EXPECT_EQ(worker.index->value, 3);
  EXPECT_FALSE(worker.num_workers.has_value());
  const ClusterView ps = View(
      Role::kPs,
      R"({"cluster": {"ps": {"2": "p2:1", "4": "p4:1"}}, "task": {"type": "ps", "index": 4}})");
  EXPECT_EQ(ps.own_address->value, "p4:1");
}

TEST(TfConfigTest, DoesNotCountTheEvaluator) {
  const std::string cluster =
      R"({"cluster": {"ps": ["p:1"], "worker": ["w:1"], "evaluator": ["e:1", "f:1"]}, )";
  const ClusterView ps = View(Role::kPs, cluster + R"("task": {"type": "ps", "index": 0}})");
  EXPECT_EQ(ps.num_ps->value, 1);
  const auto parsed = ParseTfConfig(cluster + R"("task": {"type": "worker", "index": 0}})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed->workers, UnorderedElementsAre(Pair(0, "w:1")));
}

TEST(TfConfigTest, EvaluatorReadsOnlyItsRole) {
  const ClusterView view = View(
      Role::kEvaluator, R"({"cluster": "not for me", "task": {"type": "evaluator", "index": 4}})");
  EXPECT_EQ(view.role->value, Role::kEvaluator);
  EXPECT_FALSE(view.ps.has_value());
}

TEST(TfConfigTest, TheConfigOfAnotherRoleOnlyGivesThatRole) {
  const ClusterView view = View(
      Role::kWorker,
      R"({"cluster": {"ps": ["p:1"], "worker": ["w:1"]}, "task": {"type": "ps", "index": 0}})");
  EXPECT_EQ(view.role->value, Role::kPs);
  EXPECT_EQ(view.role->source, "TF_CONFIG: task.type");
  EXPECT_FALSE(view.index.has_value());
}

TEST(TfConfigTest, NamesMalformedInput) {
  const auto error = [](const std::string& text) {
    for (const Role role : {Role::kPs, Role::kWorker}) {
      EXPECT_EQ(ReadTfConfig(role, text).status().code(), absl::StatusCode::kInvalidArgument)
          << text;
    }
    return std::string(ReadTfConfig(Role::kWorker, text).status().message());
  };
  EXPECT_THAT(error("{"), HasSubstr("TF_CONFIG: expected a JSON object"));
  EXPECT_THAT(error("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(error(R"({"cluster": []})"), HasSubstr("cluster: expected an object"));
  EXPECT_THAT(error(R"({"cluster": {"ps": "p:1"}})"), HasSubstr("cluster.ps: expected an array"));
  EXPECT_THAT(error(R"({"cluster": {"ps": [1]}})"),
              HasSubstr("cluster.ps[0]: expected \"host:port\", got 1"));
  EXPECT_THAT(error(R"({"sparseCluster": {"worker": {"x": "p:1"}}})"),
              HasSubstr("sparseCluster.worker: expected task indices as keys"));
  EXPECT_THAT(error(R"({"cluster": {"boss": ["p:1"]}})"), HasSubstr("got \"boss\""));
  EXPECT_THAT(error(R"({"cluster": {"chief": ["a:1", "b:1"]}})"), HasSubstr("one address"));
  EXPECT_THAT(error(R"({"cluster": {"chief": ["a:1"], "master": ["b:1"]}})"),
              HasSubstr("one address"));
  EXPECT_THAT(error(R"({"cluster": {}, "sparseCluster": {}})"), HasSubstr("both"));
  EXPECT_THAT(error(R"({"task": 7})"), HasSubstr("task: expected an object"));
  EXPECT_THAT(error(R"({"task": {"type": "boss"}})"), HasSubstr("task.type"));
  EXPECT_THAT(error(R"({"task": {"type": 3}})"), HasSubstr("task.type: expected a string, got 3"));
  EXPECT_THAT(error(R"({"task": {"index": -1}})"), HasSubstr("task.index"));
  EXPECT_THAT(error(R"({"task": {"index": "one"}})"), HasSubstr("task.index"));
  EXPECT_THAT(error(R"({"task": {"index": 1e30}})"), HasSubstr("task.index"));
  EXPECT_THAT(error(R"({"cluster": {"ps": ["p:1", "q:1"]}, "task": {"type": "ps", "index": 3}})"),
              HasSubstr("TF_CONFIG: task.index 3 is not within cluster.ps (2 addresses)"));
  EXPECT_THAT(error(R"({"cluster": {"worker": ["w:1"]}, "task": {"type": "chief"}})"),
              HasSubstr("task.index 0 is not within cluster.chief (0 addresses)"));
}

TEST(TfConfigTest, AWorkerNeedsEveryPsTask) {
  const auto view = ReadTfConfig(
      Role::kWorker,
      R"({"cluster": {"ps": {"0": "p0:1", "2": "p2:1"}, "worker": {"0": "w:1"}}, "task": {"type": "worker"}})");
  EXPECT_THAT(std::string(view.status().message()), HasSubstr("index 1 is missing before 2"));
}

}  // namespace
}  // namespace pushpull

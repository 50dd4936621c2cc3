#include "common/cluster/resolve_cluster.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr char kCluster[] =
    R"({"cluster": {"ps": ["p0:2222", "p1:2223"], "worker": ["w0:2222", "w1:2222"],
                    "evaluator": ["e0:2222"]}, "task": {"type": ")";

Environment TfConfigOf(const std::string& type, int index) {
  return {{"TF_CONFIG", kCluster + type + R"(", "index": )" + std::to_string(index) + "}}"}};
}

Environment Sparse(const std::string& cluster, const std::string& type, int index) {
  return {{"TF_CONFIG", R"({"sparseCluster": )" + cluster + R"(, "task": {"type": ")" + type +
                            R"(", "index": )" + std::to_string(index) + "}}"}};
}

// The flags that a user gives on the command line.
struct Given {
  std::optional<std::vector<std::string>> ps = {};
  std::optional<int> num = {};  // --tasks or --num_workers
  std::optional<int> index = {};
  std::optional<std::string> listen = {};
};

absl::StatusOr<ClusterSpec> Find(Role role, const Environment& environment,
                                 const Given& given = {}) {
  const bool ps = role == Role::kPs;
  ClusterView flags;
  if (given.ps.has_value()) flags.ps = {*given.ps, ps ? "flag --cluster" : "flag --ps"};
  if (given.index.has_value()) {
    flags.index = {*given.index, ps ? "flag --task_index" : "flag --worker_index"};
  }
  if (given.num.has_value()) {
    (ps ? flags.num_ps : flags.num_workers) = {*given.num,
                                               ps ? "flag --tasks" : "flag --num_workers"};
  }
  return FindCluster(role, flags, given.listen, environment);
}

ClusterSpec Found(Role role, const Environment& environment, const Given& given = {}) {
  const auto spec = Find(role, environment, given);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value_or(ClusterSpec());
}

std::string Refused(Role role, const Environment& environment, const Given& given = {}) {
  const auto spec = Find(role, environment, given);
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument)
      << (spec.ok() ? spec->Describe() : "");
  return std::string(spec.status().message());
}

TEST(ResolveClusterTest, DefaultsToThisMachineAlone) {
  for (const Environment& environment : {Environment{}, Environment{{"TF_CONFIG", ""}}}) {
    const ClusterSpec worker = Found(Role::kWorker, environment);
    EXPECT_THAT(worker.ps.value, ElementsAre("127.0.0.1:2222"));
    EXPECT_EQ(worker.num_workers.value, 1);
    EXPECT_EQ(worker.index.value, 0);
    EXPECT_EQ(worker.index.source, "default");
    const ClusterSpec ps = Found(Role::kPs, environment);
    EXPECT_EQ(ps.index.value, -1);
    EXPECT_EQ(ps.num_ps.value, 1);
    EXPECT_EQ(ps.listen.value, "127.0.0.1:2222");
    EXPECT_TRUE(CheckRole(Role::kEvaluator, environment).ok());
  }
}

TEST(ResolveClusterTest, TfConfigSetsEverything) {
  const ClusterSpec worker = Found(Role::kWorker, TfConfigOf("worker", 1));
  EXPECT_EQ(worker.Describe(),
            "worker 1 (TF_CONFIG) of 2 (TF_CONFIG), ps at p0:2222,p1:2223 (TF_CONFIG)");
  const ClusterSpec ps = Found(Role::kPs, TfConfigOf("ps", 1));
  EXPECT_EQ(ps.Describe(),
            "ps task 1 (TF_CONFIG) of 2 (TF_CONFIG) at p0:2222,p1:2223 (TF_CONFIG), listening on "
            "0.0.0.0:2223 (own address of TF_CONFIG)");
  EXPECT_TRUE(CheckRole(Role::kEvaluator, TfConfigOf("evaluator", 0)).ok());
}

TEST(ResolveClusterTest, FlagsOverrideTheEnvironment) {
  const ClusterSpec worker =
      Found(Role::kWorker, TfConfigOf("worker", 1), {.ps = {{"q:1"}}, .num = 7, .index = 4});
  EXPECT_EQ(worker.Describe(),
            "worker 4 (flag --worker_index) of 7 (flag --num_workers), ps at q:1 (flag --ps)");
  // The flag asks for a single worker although TF_CONFIG has two.
  const ClusterSpec alone = Found(Role::kWorker, TfConfigOf("worker", 0), {.num = 1});
  EXPECT_EQ(alone.num_workers.value, 1);
  const ClusterSpec ps =
      Found(Role::kPs, TfConfigOf("ps", 1),
            {.ps = {{"a:1", "b:2", "c:3"}}, .num = 3, .index = 2, .listen = "x:9"});
  EXPECT_EQ(ps.Describe(),
            "ps task 2 (flag --task_index) of 3 (flag --tasks) at a:1,b:2,c:3 (flag --cluster), "
            "listening on x:9 (flag --listen)");
}

TEST(ResolveClusterTest, TfConfigOverridesSlurm) {
  const Environment slurm = {{"SLURM_JOB_ID", "7"},        {"SLURM_PROCID", "2"},
                             {"SLURM_NTASKS", "4"},        {"SLURM_JOB_NODELIST", "n1"},
                             {"PUSHPULL_PS_TASKS", "2"},   {"PUSHPULL_WORKERS", "2"},
                             {"SLURM_TASKS_PER_NODE", "4"}};
  const ClusterSpec worker = Found(Role::kWorker, slurm);
  EXPECT_EQ(worker.index.source, "SLURM_PROCID");
  EXPECT_EQ(worker.index.value, 0);
  EXPECT_EQ(worker.num_workers.source, "PUSHPULL_WORKERS");
  EXPECT_THAT(Refused(Role::kPs, slurm),
              HasSubstr("SLURM_PROCID says that this process is the worker, but the program is "
                        "ps_server; start worker here"));
  Environment both = slurm;
  both.insert(*TfConfigOf("worker", 1).begin());
  EXPECT_EQ(Found(Role::kWorker, both).index.source, "TF_CONFIG");
}

TEST(ResolveClusterTest, OneProcessServesAllTasks) {
  const ClusterSpec ps = Found(Role::kPs, {}, {.num = 3, .listen = "unix:/tmp/s"});
  EXPECT_EQ(ps.Describe(),
            "all 3 ps tasks (flag --tasks), listening on unix:/tmp/s (flag --listen)");
}

TEST(ResolveClusterTest, ListensOnTheAddressThatOthersUse) {
  const auto listen = [](const std::string& own) {
    return Found(Role::kPs, {}, {.ps = {{own}}, .index = 0}).listen.value;
  };
  EXPECT_EQ(listen("ps-0.example:2222"), "0.0.0.0:2222");
  EXPECT_EQ(listen("10.0.0.7:99"), "0.0.0.0:99");
  EXPECT_EQ(listen("127.0.0.1:99"), "127.0.0.1:99");
  EXPECT_EQ(listen("localhost:99"), "localhost:99");
  EXPECT_EQ(listen("[::1]:99"), "[::1]:99");
  EXPECT_EQ(listen("unix:/run/ps"), "unix:/run/ps");
}

TEST(ResolveClusterTest, RefusesAUnixSocketThatCannotBeReached) {
  EXPECT_THAT(Refused(Role::kPs, {}, {.listen = "unix:/run/a#b"}),
              HasSubstr("--listen=unix:/run/a#b: the path of the Unix socket has the character #"));
  EXPECT_THAT(Refused(Role::kPs, {}, {.listen = "unix:"}), HasSubstr("--listen=unix:: the path"));
  for (const std::string& path : {std::string("/run/a?b"), std::string("/run/a%20b"), std::string(),
                                  "/" + std::string(107, 'x')}) {
    EXPECT_THAT(
        Refused(Role::kWorker, {}, {.ps = {{"unix:/run/ps", "unix:" + path}}}),
        HasSubstr("address \"unix:" + path + "\" of ps task 1: the path of the Unix socket"));
  }
}

TEST(ResolveClusterTest, RefusesABadListenAddress) {
  for (const char* address : {"127.0.0.1:99999", "localhost", ":2222", "host:port", "host:-1",
                              "http://127.0.0.1:2222", "::1:2222", "[::1", "[::1:22", "[]:22",
                              "1.2.3.4:80:80", "1.2.3.4 :80", "1.2.3.4:80 ", "1.2.3.4: 80"}) {
    EXPECT_THAT(Refused(Role::kPs, {}, {.listen = address}),
                HasSubstr(absl::StrCat("--listen=", address,
                                       ": expected host:port with a port from "
                                       "0 to 65535")));
  }
  EXPECT_THAT(Refused(Role::kPs, {}, {.listen = "::1:2222"}),
              HasSubstr("an IPv6 address needs brackets, such as [::1]:2222"));
  EXPECT_THAT(Refused(Role::kPs, {}, {.listen = "http://127.0.0.1:2222"}),
              EndsWith("a port from 0 to 65535; leave out http://"));
  EXPECT_THAT(Refused(Role::kWorker, {}, {.ps = {{"grpc://[::1]:2222"}}}),
              EndsWith("a port from 1 to 65535; leave out grpc://"));
  for (const char* address : {"127.0.0.1:0", "[::1]:0", "[fe80::1%eth0]:80", "ps_0.example:80"}) {
    EXPECT_EQ(Found(Role::kPs, {}, {.listen = address}).listen.value, address);
  }
}

TEST(ResolveClusterTest, RefusesTheProgramOfAnotherRole) {
  EXPECT_THAT(
      Refused(Role::kPs, TfConfigOf("worker", 0)),
      HasSubstr("TF_CONFIG: task.type says that this process is the worker, but the program "
                "is ps_server; start worker here"));
  EXPECT_THAT(Refused(Role::kWorker, TfConfigOf("ps", 0)), HasSubstr("start ps_server here"));
  EXPECT_THAT(Refused(Role::kWorker, TfConfigOf("evaluator", 0)),
              HasSubstr("start evaluator here"));
  EXPECT_THAT(std::string(CheckRole(Role::kEvaluator, TfConfigOf("worker", 0)).message()),
              HasSubstr("the program is evaluator; start worker here"));
  // Flags do not override the role.
  EXPECT_THAT(Refused(Role::kWorker, TfConfigOf("ps", 0), {.ps = {{"a:1"}}, .num = 1, .index = 0}),
              HasSubstr("TF_CONFIG"));
}

TEST(ResolveClusterTest, AsksForWhatTheSparseFormLeavesOut) {
  const Environment worker =
      Sparse(R"({"worker": {"1": "w1:1"}, "ps": ["p0:1", "p1:1"]})", "worker", 1);
  EXPECT_THAT(Refused(Role::kWorker, worker),
              AllOf(HasSubstr("the number of workers is not known"), HasSubstr("TF_CONFIG"),
                    HasSubstr("sparse form"), HasSubstr("give --num_workers")));
  EXPECT_EQ(Found(Role::kWorker, worker, {.num = 4}).index.value, 1);

  const Environment ps = Sparse(R"({"worker": {}, "ps": ["p1:5"]})", "ps", 1);
  EXPECT_THAT(Refused(Role::kPs, ps),
              AllOf(HasSubstr("the number of ps tasks is not known"),
                    HasSubstr("sees itself alone"), HasSubstr("give --tasks, and --cluster")));
  EXPECT_THAT(Refused(Role::kPs, ps, {.num = 2}),
              AllOf(HasSubstr("addresses of the 2 ps tasks"), HasSubstr("give --cluster")));
  EXPECT_THAT(
      Refused(Role::kPs, ps, {.ps = {{"p0:5", "other:5"}}}),
      AllOf(HasSubstr("flag --cluster has other:5"), HasSubstr("contradicts TF_CONFIG: p1:5")));
  const ClusterSpec found = Found(Role::kPs, ps, {.ps = {{"p0:5", "p1:5"}}});
  EXPECT_EQ(found.num_ps.value, 2);
  EXPECT_EQ(found.listen.value, "0.0.0.0:5");
  // A single ps task only needs the number of workers.
  const Environment only = Sparse(R"({"worker": {}, "ps": ["p0:5"]})", "ps", 0);
  EXPECT_THAT(Found(Role::kPs, only, {.num = 1}).ps.value, ElementsAre("p0:5"));
}

TEST(ResolveClusterTest, AsksForMissingValues) {
  EXPECT_THAT(
      Refused(Role::kWorker,
              {{"TF_CONFIG", R"({"cluster": {"worker": ["w:1"]}, "task": {"type": "worker"}})"}}),
      AllOf(HasSubstr("no address of a ps task"), HasSubstr("TF_CONFIG"), HasSubstr("--ps")));
  EXPECT_THAT(Refused(Role::kWorker,
                      {{"TF_CONFIG", R"({"cluster": {"ps": ["p:1"], "worker": ["w:1", "x:1"]}})"}}),
              AllOf(HasSubstr("which of the 2 workers (TF_CONFIG)"), HasSubstr("--worker_index")));
  EXPECT_THAT(
      Refused(Role::kWorker, {}, {.num = 2}),
      AllOf(HasSubstr("which of the 2 workers (flag --num_workers)"), HasSubstr("--worker_index")));
  EXPECT_THAT(Refused(Role::kPs, {{"TF_CONFIG", R"({"cluster": {"ps": ["p:1", "q:1"]}})"}}),
              AllOf(HasSubstr("which of the 2 ps tasks (TF_CONFIG)"), HasSubstr("--task_index")));
  EXPECT_THAT(Refused(Role::kPs, {}, {.ps = {{"a:1"}}}), HasSubstr("give --task_index"));
  EXPECT_THAT(Refused(Role::kPs, {}, {.index = 0}), HasSubstr("give --tasks, and --cluster"));
  EXPECT_THAT(Refused(Role::kPs, {}, {.num = 2, .index = 0}), HasSubstr("give --cluster"));
}

TEST(ResolveClusterTest, NamesBothSourcesOfAContradiction) {
  EXPECT_THAT(Refused(Role::kWorker, TfConfigOf("worker", 1), {.num = 1}),
              HasSubstr("worker index: 1 (TF_CONFIG) is not within the number of workers: flag "
                        "--num_workers=1"));
  EXPECT_THAT(
      Refused(Role::kWorker, TfConfigOf("worker", 1), {.index = 2}),
      HasSubstr("flag --worker_index=2 is not within the number of workers: 2 (TF_CONFIG)"));
  EXPECT_THAT(Refused(Role::kPs, TfConfigOf("ps", 0), {.num = 3}),
              HasSubstr("flag --tasks=3 contradicts the 2 addresses of TF_CONFIG"));
  EXPECT_THAT(Refused(Role::kPs, {}, {.ps = {{"a:1", "b:1"}}, .num = 3, .index = 0}),
              HasSubstr("flag --tasks=3 contradicts the 2 addresses of flag --cluster"));
  EXPECT_THAT(Refused(Role::kPs, TfConfigOf("ps", 0), {.index = 2}),
              HasSubstr("flag --task_index=2 is not within the number of ps tasks: 2 (TF_CONFIG)"));
}

TEST(ResolveClusterTest, NamesBadValues) {
  EXPECT_THAT(Refused(Role::kWorker, {}, {.num = -1}), HasSubstr("flag --num_workers=-1"));
  EXPECT_THAT(Refused(Role::kWorker, {}, {.index = -2}), HasSubstr("flag --worker_index=-2"));
  EXPECT_THAT(Refused(Role::kPs, {}, {.num = -3}), HasSubstr("flag --tasks=-3"));
  EXPECT_THAT(Refused(Role::kPs, {}, {.index = -2}), HasSubstr("flag --task_index=-2"));
  for (const std::string address : {"host", "host:", ":5", "host:0", "host:70000", "host:x", ""}) {
    EXPECT_THAT(Refused(Role::kWorker, {}, {.ps = {{"a:1", address}}}),
                HasSubstr("flag --ps: address \"" + address + "\" of ps task 1"));
  }
  EXPECT_THAT(Refused(Role::kWorker, {}, {.ps = {{"a:1", "a:1"}}}),
              HasSubstr("another task has it"));
  EXPECT_THAT(Refused(Role::kWorker, {{"TF_CONFIG", "{"}}), HasSubstr("TF_CONFIG"));
}

}  // namespace
}  // namespace pushpull

#include "ps_server/monitoring/monitoring_server.h"

#include <atomic>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "ps_server/monitoring/metrics_page.h"
#include "ps_server/monitoring/status_json.h"
#include "ps_server/monitoring/status_page.h"
#include "tests/ps_server/monitoring/http_client.h"

namespace pushpull {
namespace {

using nlohmann::json;

constexpr char kHostileName[] = "</script><img src=x onerror=alert(1)>\"\\\n";

ps::StatusReply MakeStatus() {
  ps::StatusReply status;
  status.set_run_id(std::string(16, '\xab'));
  status.set_epoch(3);
  status.set_version(120);
  status.set_num_steps(400);
  status.set_durable_step(100);
  status.set_has_checkpoint(true);
  status.set_waiting_for("clone 1 of 2 (compute)");
  status.set_waiting_seconds(7.5);
  status.set_checkpoints(2);
  status.set_seconds_since_checkpoint(30);
  status.set_last_checkpoint_seconds(0.5);
  status.set_void_contributions(4);
  status.add_late_clones(1);
  ps::Histogram& contributors = *status.mutable_contributors();
  contributors.add_upper_bounds(1);
  contributors.add_upper_bounds(2);
  for (const uint64_t count : {5, 115, 0}) contributors.add_counts(count);
  contributors.set_sum(235);
  ps::CloneStatus& first = *status.add_clones();
  first.set_peer_name(kHostileName);
  first.mutable_arithmetic()->set_device("the CPU (avx2) in fp32");
  first.add_replicas(0);
  first.set_alive(true);
  first.set_seconds_since_seen(0.5);
  first.set_contributions(120);
  first.mutable_progress()->set_images_per_second(60);
  first.mutable_progress()->mutable_phase_seconds()->set_compute(100);
  first.mutable_progress()->mutable_phase_seconds()->set_wait(20);
  first.mutable_progress()->mutable_gpu()->set_name("H100 \xe2\x82\xac\xff\xe2");
  first.mutable_progress()->mutable_gpu()->set_utilization(0.75);
  ps::CloneStatus& second = *status.add_clones();
  second.set_worker_id(1);
  second.set_seconds_since_seen(-1);
  return status;
}

TrainingFigures MakeFigures() {
  TrainingFigures figures;
  figures.step = 120;
  figures.loss = 1.5;
  figures.learning_rate = 0.01;
  figures.images_per_second = 120;
  figures.steps_per_second = 2;
  figures.images = 3840;
  figures.losses = 120;
  figures.clone_loss[0] = std::nan("");
  return figures;
}

class MonitoringServerTest : public ::testing::Test {
 protected:
  MonitoringSources MakeSources() {
    MonitoringSources sources;
    sources.status = [this] {
      ++looks_;
      return MakeStatus();
    };
    sources.figures = [this] {
      ++figures_read_;
      return MakeFigures();
    };
    sources.take_losses = [this] {
      ++losses_taken_;
      return std::exchange(losses_, {});
    };
    sources.counters = {counters_};
    sources.unix_seconds = [this] { return unix_seconds_; };
    sources.now = [this] { return now_; };
    return sources;
  }
  void Listen(const std::string& host = "127.0.0.1") {
    HttpServerOptions options;
    options.host = host;
    auto server = MonitoringServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void Start(const std::string& host = "127.0.0.1", int first_task = 0) {
    Listen(host);
    MonitoringIdentity identity;
    identity.version = "1.2.3";
    identity.tasks = 2;
    identity.first_task = first_task;
    shown_ = server_->Show(identity, MakeSources());
  }
  std::string Fetch(const std::string& path, int code = 200) {
    const std::string answer = Get(server_->port(), path);
    EXPECT_EQ(CodeOf(answer), code) << answer;
    return answer;
  }

  std::atomic<int> looks_{0};
  std::atomic<int> figures_read_{0};  // by pages and by ticks
  std::atomic<int> losses_taken_{0};  // by ticks
  double unix_seconds_ = 1000.0;
  absl::Duration now_ = absl::Seconds(70);
  LossSum losses_ = {120, 240.0};
  std::shared_ptr<RequestCounters> counters_ =
      std::make_shared<RequestCounters>([] { return absl::ZeroDuration(); });
  std::unique_ptr<MonitoringServer> server_;
  std::unique_ptr<MonitoringServer::Shown> shown_;
};

TEST_F(MonitoringServerTest, ServesItsPages) {
  Start();
  EXPECT_EQ(BodyOf(Fetch("/healthz")), "ok\n");
  EXPECT_TRUE(absl::StrContains(Fetch("/metrics"), "Content-Type: text/plain; version=0.0.4"));
  EXPECT_TRUE(absl::StrContains(Fetch("/status.json"), "Content-Type: application/json\r\n"));
  const std::string page = Fetch("/");
  EXPECT_TRUE(absl::StrContains(page, "Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_TRUE(absl::StrContains(page, "X-Content-Type-Options: nosniff\r\n"));
  EXPECT_TRUE(absl::StrContains(page, "Content-Security-Policy: default-src 'none'; "));
  EXPECT_EQ(BodyOf(page), StatusPage());
  Fetch("/nothing", 404);
  Fetch("/../etc/passwd", 404);
}

TEST_F(MonitoringServerTest, IsHealthyBeforeThereIsAnythingToShow) {
  Listen();
  const auto expect_nothing_but_health = [this] {
    EXPECT_EQ(BodyOf(Fetch("/healthz")), "ok\n");
    for (const std::string page : {"/", "/status.json", "/metrics"}) {
      EXPECT_TRUE(absl::StrContains(Fetch(page, 503), "starts or ends")) << page;
    }
    Fetch("/nothing", 404);
  };
  expect_nothing_but_health();
  shown_ = server_->Show({}, MakeSources());
  Fetch("/status.json");
  shown_.reset();
  const int looks = looks_;
  const int figures_read = figures_read_;
  const int losses_taken = losses_taken_;
  expect_nothing_but_health();
  absl::SleepFor(HttpServerOptions().tick_interval * 1.5);
  EXPECT_EQ(looks_, looks) << "the sources may be gone";
  EXPECT_EQ(figures_read_, figures_read) << "the sources may be gone";
  EXPECT_EQ(losses_taken_, losses_taken) << "the sources may be gone";
}

TEST_F(MonitoringServerTest, ThePageLoadsNothingFromOtherServers) {
  const std::string page(StatusPage());
  for (const std::string foreign :
       {"src=", "@import", "url(", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
        "eval(", "https:", "style=\"", "onclick=\""}) {
    EXPECT_FALSE(absl::StrContains(page, foreign)) << foreign;
  }
  const std::string policy = StatusPagePolicy(page);
  EXPECT_FALSE(absl::StrContains(policy, "unsafe")) << policy;
  EXPECT_EQ(policy.size(), StatusPagePolicy("<style>a</style><script>b</script>").size());
  // Computed with: echo -n b | openssl dgst -sha256 -binary | base64
  EXPECT_TRUE(
      absl::StrContains(StatusPagePolicy("<style>a</style><script>b</script>"),
                        "script-src 'sha256-PiPoFgA5WUoziU9lZOGxNIu9egCI1CxKy3PurtWcAJ0='"));
}

TEST_F(MonitoringServerTest, ManyRequestsShareASnapshot) {
  Start();
  const absl::Time start = absl::Now();
  for (int i = 0; i < 40; ++i) Fetch("/status.json");
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  EXPECT_LE(looks_, 2 + static_cast<int>(seconds / 0.25));
  EXPECT_GE(looks_, 1);
}

TEST_F(MonitoringServerTest, RefusesOtherHostNamesOnLoopback) {
  Start();
  EXPECT_EQ(CodeOf(Get(server_->port(), "/status.json", "attacker.example")), 421);
  for (const std::string name : {"127.0.0.1:99", "LOCALHOST", "[::1]:80"}) {
    EXPECT_EQ(CodeOf(Get(server_->port(), "/status.json", name)), 200) << name;
  }
  EXPECT_EQ(CodeOf(Get(server_->port(), "/status.json", "127.0.0.1.example.org")), 421);
  EXPECT_EQ(CodeOf(Ask(server_->port(), "GET /healthz HTTP/1.0\r\n\r\n")), 200)
      << "HTTP/1.0 has no Host header";
  Start("0.0.0.0");
  EXPECT_EQ(CodeOf(Get(server_->port(), "/status.json", "pod-7.cluster.local:9095")), 200);
}

TEST_F(MonitoringServerTest, StatusJsonHasEveryField) {
  Start();
  const json status = json::parse(BodyOf(Fetch("/status.json")));
  EXPECT_EQ(status["step"], 120);
  EXPECT_EQ(status["program_version"], "1.2.3");
  EXPECT_FALSE(status.contains("version")) << "in psctl's JSON it is the step";
  EXPECT_EQ(status["run_id"], "abababababababababababababababab");
  EXPECT_EQ(status["waiting_for"], "clone 1 of 2 (compute)");
  EXPECT_EQ(status["waiting_seconds"], 7.5);
  EXPECT_TRUE(status["seconds_left"].is_null()) << "the job waits";
  EXPECT_TRUE(status["accuracy"].is_null());
  EXPECT_TRUE(status["staleness"].is_null());
  EXPECT_EQ(status["contributors"]["counts"], (json{5, 115, 0}));
  EXPECT_EQ(status["checkpoint"]["exists"], true);
  EXPECT_EQ(status["checkpoint"]["age_seconds"], 30.0);
  ASSERT_EQ(status["clones"].size(), 2);
  const json& first = status["clones"][0];
  EXPECT_EQ(first["peer"], kHostileName) << "the name is unchanged; the page shows it as text";
  EXPECT_EQ(first["device"], "the CPU (avx2) in fp32");
  EXPECT_EQ(first["state"], "alive");
  EXPECT_TRUE(first["loss"].is_null()) << "JSON has no NaN";
  EXPECT_EQ(first["phase_seconds"]["compute"], 100.0);
  EXPECT_EQ(first["gpu"]["utilization"], 0.75);
  EXPECT_EQ(first["gpu"]["name"], "H100 \xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd") << "valid UTF-8";
  const json& second = status["clones"][1];
  EXPECT_EQ(second["state"], "never seen");
  EXPECT_EQ(second["late"], true);
  EXPECT_TRUE(second["seconds_since_seen"].is_null());
  EXPECT_TRUE(second["phase_seconds"].is_null());
}

TEST_F(MonitoringServerTest, ACloneThatIsNotAliveHasNoRateAndNoPhase) {
  Monitor monitor({.version = "1.2.3"}, MakeSources());
  MonitoringSnapshot snapshot = monitor.Snapshot();
  snapshot.status.clear_waiting_for();
  ps::CloneStatus& clone = *snapshot.status.mutable_clones(0);
  clone.mutable_progress()->set_phase("compute");
  json status = json::parse(StatusJson(snapshot));
  EXPECT_EQ(status["seconds_left"], 140.0);
  EXPECT_EQ(status["clones"][0]["phase"], "compute");
  EXPECT_EQ(status["clones"][0]["images_per_second"], 60.0);
  constexpr char kRate[] = "\nps_clone_images_per_second{clone=\"0\"} 60\n";
  EXPECT_TRUE(absl::StrContains(MetricsPage(snapshot), kRate));
  clone.set_alive(false);
  status = json::parse(StatusJson(snapshot));
  EXPECT_EQ(status["clones"][0]["phase"], "");
  EXPECT_TRUE(status["clones"][0]["images_per_second"].is_null());
  for (const char* name : {"ps_clone_images_per_second{", "ps_clone_gpu_utilization_ratio{"}) {
    EXPECT_FALSE(absl::StrContains(MetricsPage(snapshot), name)) << name;
  }
  clone.set_left(true);
  EXPECT_TRUE(absl::StrContains(MetricsPage(snapshot), "\nps_clone_left{clone=\"0\"} 1\n"));
}

TEST_F(MonitoringServerTest, OtherTasksReportOnlyTheirShard) {
  counters_->CountPushedBytes(77);
  Start("127.0.0.1", 1);
  const std::string metrics = BodyOf(Fetch("/metrics"));
  EXPECT_TRUE(absl::StrContains(metrics, "ps_push_received_bytes_total{shard=\"1\"} 77\n"));
  EXPECT_FALSE(absl::StrContains(metrics, "ps_global_step"));
  EXPECT_FALSE(absl::StrContains(metrics, "ps_clone_up"));
  const json status = json::parse(BodyOf(Fetch("/status.json")));
  EXPECT_EQ(status["is_coordinator"], false);
  EXPECT_EQ(status["shards"][0]["shard"], 1);
  EXPECT_FALSE(status.contains("clones"));
  EXPECT_EQ(looks_, 0);
}

TEST_F(MonitoringServerTest, WritesTheMetricsOfASnapshot) {
  counters_->CountCall(PsMethod::kPush, absl::StatusCode::kOk);
  counters_->CountCall(PsMethod::kPush, absl::StatusCode::kAborted);
  counters_->CountCall(PsMethod::kHeartbeat, absl::StatusCode::kOk);
  Monitor monitor({.version = "1.2.3"}, MakeSources());
  const std::string metrics = MetricsPage(monitor.Snapshot());
  for (const std::string line :
       {"ps_build_info{version=\"1.2.3\"} 1",
        "ps_global_step 120",
        "ps_loss 1.5",
        "ps_images_total 3840",
        "ps_waiting_seconds 7.5",
        "ps_void_contributions_total 4",
        "# HELP ps_accuracy Share of the last step's images that were classified correctly.",
        "# TYPE ps_accuracy gauge",
        "# TYPE ps_images_total counter",
        "# TYPE ps_step_contributors histogram",
        "ps_step_contributors_bucket{le=\"1\"} 5",
        "ps_step_contributors_bucket{le=\"2\"} 120",
        "ps_step_contributors_bucket{le=\"+Inf\"} 120",
        "ps_step_contributors_sum 235",
        "ps_checkpoint_last_success_timestamp_seconds 970",
        "ps_clone_up{clone=\"0\"} 1",
        "ps_clone_up{clone=\"1\"} 0",
        "ps_clone_left{clone=\"0\"} 0",
        "ps_clone_late{clone=\"1\"} 1",
        "ps_clone_last_seen_timestamp_seconds{clone=\"0\"} 999.5",
        "ps_clone_phase_seconds_total{clone=\"0\",phase=\"compute\"} 100",
        "ps_clone_gpu_utilization_ratio{clone=\"0\"} 0.75",
        "ps_clone_gpu_info{clone=\"0\",name=\"H100 \xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd\"} 1",
        "ps_clone_loss{clone=\"0\"} Nan",
        "ps_push_requests_total{shard=\"0\",code=\"OK\"} 1",
        "ps_push_requests_total{shard=\"0\",code=\"ABORTED\"} 1",
        "ps_requests_total{shard=\"0\",method=\"Heartbeat\",code=\"OK\"} 1",
        "ps_clone_info{clone=\"0\",peer=\"</script><img src=x onerror=alert(1)>\\\"\\\\\\n\"} "
        "1"}) {
    EXPECT_TRUE(absl::StrContains(metrics, "\n" + line + "\n")) << line << " is not in\n"
                                                                << metrics;
  }
  std::set<std::string> families;
  for (const absl::string_view line : absl::StrSplit(metrics, '\n')) {
    if (!absl::StartsWith(line, "# TYPE ")) continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    EXPECT_TRUE(families.insert(words[2]).second) << words[2] << " is there twice";
    EXPECT_EQ(absl::EndsWith(words[2], "_total"), words[3] == "counter") << line;
  }
  EXPECT_GT(families.size(), 50);
  for (const std::string absent : {"\nps_accuracy ", "ps_gradient_staleness_steps_bucket",
                                   "ps_clone_last_seen_timestamp_seconds{clone=\"1\"}",
                                   "ps_clone_images_total{clone=\"1\"}"}) {
    EXPECT_FALSE(absl::StrContains(metrics, absent)) << absent;
  }
}

TEST_F(MonitoringServerTest, TheHistoryHasMeansBetweenSamples) {
  MonitoringSources sources = MakeSources();
  TrainingFigures figures;
  sources.figures = [&figures] { return figures; };
  Monitor monitor({}, sources);
  losses_ = {};
  monitor.Look();
  EXPECT_TRUE(monitor.Snapshot().history.empty()) << "there are no steps yet";
  const auto look_after = [&](absl::Duration time, uint64_t images, const LossSum& losses) {
    now_ += time;
    unix_seconds_ -= 100.0;  // somebody sets the date back
    ++figures.step;
    figures.images += images;
    losses_ = losses;
    monitor.Look();
  };
  look_after(absl::Seconds(300), 5000, {2, 5.0});
  EXPECT_TRUE(monitor.Snapshot().history.empty()) << "nobody knows how long the first steps took";
  look_after(absl::Seconds(2), 640, {2, 1.0});
  look_after(absl::Seconds(4), 640, {1, 1e20});
  look_after(absl::Seconds(1), 100, {1, 0.25});
  monitor.Look();
  const auto history = monitor.Snapshot().history;
  ASSERT_EQ(history.size(), 3);
  EXPECT_EQ(history[0].loss, 6.0 / 4);
  EXPECT_EQ(history[0].images_per_second, 320.0);
  EXPECT_EQ(history[1].loss, 1e20);
  EXPECT_EQ(history[1].images_per_second, 160.0);
  EXPECT_EQ(history[2].step, 4);
  EXPECT_EQ(history[2].loss, 0.25);
  EXPECT_EQ(history[2].images_per_second, 100.0);
  EXPECT_EQ(history[2].unix_seconds, 600.0);
}

TEST(ProcessStatsTest, ReadsTheStatsOfThisProcess) {
  const ProcessStats stats = ReadProcessStats();
  EXPECT_GT(stats.resident_bytes, 1 << 20);
  EXPECT_GT(stats.virtual_bytes, stats.resident_bytes);
  EXPECT_GE(stats.threads, 1);
  EXPECT_GE(stats.open_descriptors, 3);
  EXPECT_GT(stats.max_descriptors, stats.open_descriptors);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LT(stats.start_unix_seconds, now + 2);
  EXPECT_GT(stats.start_unix_seconds, now - 3600);
}

}  // namespace
}  // namespace pushpull

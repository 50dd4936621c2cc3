// Tested by tests/ps_server/monitoring/monitoring_server_test.cc.
#include "ps_server/monitoring/status_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "absl/strings/escaping.h"
#include "nlohmann/json.hpp"

#include "common/base/utf8.h"

namespace pushpull {
namespace {

using nlohmann::json;

constexpr size_t kLongestText = 200;

std::string Text(const std::string& text) { return text.substr(0, kLongestText); }

// Five digits are more than a chart can show. Fewer digits make the history smaller.
json Rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  char digits[32];
  const auto end =
      std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::general, 5);
  double rounded = 0.0;
  std::from_chars(digits, end.ptr, rounded);
  return rounded;
}

json HistogramJson(const ps::Histogram& histogram) {
  return {{"upper_bounds",
           std::vector<double>(histogram.upper_bounds().begin(), histogram.upper_bounds().end())},
          {"counts", std::vector<uint64_t>(histogram.counts().begin(), histogram.counts().end())},
          {"sum", histogram.sum()}};
}

std::string CloneState(const ps::CloneStatus& clone) {
  if (clone.evicted()) return "evicted";
  if (clone.alive()) return "alive";
  if (clone.left()) return "left";
  return clone.seconds_since_seen() < 0.0 ? "never seen" : "lost";
}

json CloneJson(const ps::CloneStatus& clone, bool late, const TrainingFigures& figures) {
  const ps::CloneProgress& progress = clone.progress();
  const auto loss = figures.clone_loss.find(clone.worker_id());
  json result = {
      {"clone", clone.worker_id()},
      {"peer", Text(clone.peer_name())},
      {"device", Text(clone.arithmetic().device())},
      {"replicas", std::vector<uint32_t>(clone.replicas().begin(), clone.replicas().end())},
      {"samples_per_step", clone.samples_per_step()},
      {"state", CloneState(clone)},
      {"late", late},
      {"seconds_since_seen",
       clone.seconds_since_seen() < 0.0 ? json() : json(clone.seconds_since_seen())},
      {"phase", clone.alive() ? Text(progress.phase()) : ""},
      {"images_per_second", clone.alive() ? json(progress.images_per_second()) : json()},
      {"loss", loss == figures.clone_loss.end() ? json() : json(loss->second)},
      {"contributions", clone.contributions()},
      {"drops", clone.drops()},
      {"images", progress.images()},
      {"phase_seconds", nullptr},
      {"gpu", nullptr},
  };
  if (progress.has_phase_seconds()) {
    const ps::PhaseSeconds& seconds = progress.phase_seconds();
    result["phase_seconds"] = {{"input", seconds.input()},
                               {"pull", seconds.pull()},
                               {"compute", seconds.compute()},
                               {"push", seconds.push()},
                               {"wait", seconds.wait()}};
  }
  if (progress.has_gpu()) {
    const ps::GpuFigures& gpu = progress.gpu();
    result["gpu"] = {{"name", Text(gpu.name())},
                     {"utilization", gpu.utilization()},
                     {"memory_used_bytes", gpu.memory_used_bytes()},
                     {"memory_total_bytes", gpu.memory_total_bytes()}};
  }
  return result;
}

json ShardJson(const ShardTraffic& traffic) {
  const RequestCounters& counters = *traffic.counters;
  const auto calls = [&](PsMethod method) {
    uint64_t good = 0;
    uint64_t failed = 0;
    for (int number = 0; number < RequestCounters::kNumCodes; ++number) {
      const auto code = static_cast<absl::StatusCode>(number);
      (code == absl::StatusCode::kOk ? good : failed) += counters.calls(method, code);
    }
    return json{{"ok", good}, {"failed", failed}};
  };
  return {{"shard", traffic.shard},
          {"version", counters.pulled_version()},
          {"pushes", calls(PsMethod::kPush)},
          {"pulls", calls(PsMethod::kPull)},
          {"pushed_bytes", counters.pushed_bytes()},
          {"pulled_bytes", counters.pulled_bytes()}};
}

json HistoryJson(const std::vector<HistoryPoint>& points) {
  json result = {{"step", json::array()},
                 {"unix_seconds", json::array()},
                 {"loss", json::array()},
                 {"learning_rate", json::array()},
                 {"images_per_second", json::array()}};
  for (const HistoryPoint& point : points) {
    result["step"].push_back(point.step);
    result["unix_seconds"].push_back(std::round(point.unix_seconds * 10.0) / 10.0);
    result["loss"].push_back(Rounded(point.loss));
    result["learning_rate"].push_back(Rounded(point.learning_rate));
    result["images_per_second"].push_back(Rounded(point.images_per_second));
  }
  return result;
}

json CheckpointJson(const ps::StatusReply& status) {
  const bool published = status.checkpoints() > 0;
  return {{"exists", status.has_checkpoint()},
          {"durable_step", status.durable_step()},
          {"published", status.checkpoints()},
          {"failures", status.checkpoint_failures()},
          {"age_seconds", published ? json(status.seconds_since_checkpoint()) : json()},
          {"duration_seconds", published ? json(status.last_checkpoint_seconds()) : json()}};
}

void AddJob(const MonitoringSnapshot& snapshot, json* result) {
  const ps::StatusReply& status = snapshot.status;
  const TrainingFigures& figures = snapshot.figures;
  json& object = *result;
  object["run_id"] = absl::BytesToHexString(status.run_id());
  object["epoch"] = status.epoch();
  object["step"] = status.version();
  object["num_steps"] = status.num_steps();
  object["num_replicas"] = status.num_replicas();
  object["training_done"] = status.training_done();
  object["stopped"] = status.stopped();
  object["waiting_for"] = status.waiting_for();
  object["waiting_seconds"] = status.waiting_seconds();
  object["loss"] = figures.losses > 0 ? json(figures.loss) : json();
  object["accuracy"] = figures.accuracy >= 0.0 ? json(figures.accuracy) : json();
  object["learning_rate"] = figures.step > 0 ? json(figures.learning_rate) : json();
  object["images_per_second"] = figures.images_per_second;
  object["steps_per_second"] = figures.steps_per_second;
  object["images"] = figures.images;
  object["seconds_left"] = nullptr;
  const bool waits = !status.waiting_for().empty();
  if (!waits && figures.steps_per_second > 0.0 && status.num_steps() > status.version()) {
    object["seconds_left"] =
        static_cast<double>(status.num_steps() - status.version()) / figures.steps_per_second;
  }
  object["rolled_back_steps"] = status.rolled_back_steps();
  object["dropped_contributions"] = status.dropped_contributions();
  object["void_contributions"] = status.void_contributions();
  object["duplicate_pushes"] = status.duplicate_pushes();
  object["staleness"] = status.has_staleness() ? HistogramJson(status.staleness()) : json();
  object["contributors"] =
      status.has_contributors() ? HistogramJson(status.contributors()) : json();
  object["checkpoint"] = CheckpointJson(status);
  const std::set<uint32_t> late(status.late_clones().begin(), status.late_clones().end());
  object["clones"] = json::array();
  for (const ps::CloneStatus& clone : status.clones()) {
    object["clones"].push_back(CloneJson(clone, late.count(clone.worker_id()) > 0, figures));
  }
  object["history"] = HistoryJson(snapshot.history);
}

}  // namespace

std::string StatusJson(const MonitoringSnapshot& snapshot) {
  const MonitoringIdentity& identity = snapshot.identity;
  json result = {
      {"program_version", identity.version},
      {"unix_seconds", snapshot.unix_seconds},
      {"tasks", identity.tasks},
      {"first_task", identity.first_task},
      {"sync", identity.sync},
      {"is_coordinator", snapshot.is_coordinator},
      {"process",
       {{"cpu_seconds", snapshot.process.cpu_seconds},
        {"start_unix_seconds", snapshot.process.start_unix_seconds},
        {"resident_bytes", snapshot.process.resident_bytes},
        {"open_descriptors", snapshot.process.open_descriptors},
        {"threads", snapshot.process.threads}}},
  };
  result["shards"] = json::array();
  for (const ShardTraffic& traffic : snapshot.shards) {
    result["shards"].push_back(ShardJson(traffic));
  }
  if (snapshot.is_coordinator) AddJob(snapshot, &result);
  return JsonLine(result);
}

}  // namespace pushpull

// Tested by tests/ps_server/monitoring/monitoring_server_test.cc.
#include "ps_server/monitoring/metrics_page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/utf8.h"

namespace pushpull {
namespace {

using prometheus::MetricType;
using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

// Collects the families of a page. A sample belongs to the family that was added last. A family
// without samples still tells readers that the metric exists. Label values may hold any bytes.
class MetricsText {
 public:
  void Family(absl::string_view name, MetricType type, absl::string_view help) {
    families_.push_back({std::string(name), std::string(help), type, {}});
  }
  void Sample(MetricLabels labels, double value) {
    prometheus::ClientMetric& metric = Add(std::move(labels));
    metric.gauge.value = value;  // the family's type says which of the two is written
    metric.counter.value = value;
  }
  void Sample(double value) { Sample({}, value); }
  void Histogram(MetricLabels labels, const HistogramValues& values) {
    prometheus::ClientMetric::Histogram& histogram = Add(std::move(labels)).histogram;
    for (size_t i = 0; i < values.counts.size(); ++i) {
      histogram.sample_count += values.counts[i];
      histogram.bucket.push_back(
          {histogram.sample_count,
           i < values.bounds.size() ? values.bounds[i] : std::numeric_limits<double>::infinity()});
    }
    histogram.sample_sum = values.sum;
  }
  // Gauge and Counter add a family with one sample.
  void Gauge(absl::string_view name, absl::string_view help, double value) {
    Family(name, MetricType::Gauge, help);
    Sample(value);
  }
  void Counter(absl::string_view name, absl::string_view help, double value) {
    Family(name, MetricType::Counter, help);
    Sample(value);
  }

  std::string Serialize() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  prometheus::ClientMetric& Add(MetricLabels labels) {
    for (auto& label : labels) label.value = ValidUtf8(label.value);
    prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }

  std::vector<prometheus::MetricFamily> families_;
};

HistogramValues FromProto(const ps::Histogram& histogram) {
  HistogramValues values;
  values.bounds.assign(histogram.upper_bounds().begin(), histogram.upper_bounds().end());
  values.counts.assign(histogram.counts().begin(), histogram.counts().end());
  values.counts.resize(values.bounds.size() + 1);
  values.sum = histogram.sum();
  return values;
}

void WriteBuild(const MonitoringSnapshot& snapshot, MetricsText* text) {
  text->Family("ps_build_info", MetricType::Gauge, "Always 1; the version of the program.");
  text->Sample({{"version", snapshot.identity.version}}, 1);
  text->Gauge("ps_tasks", "Parameter-server tasks (shards) of the job.", snapshot.identity.tasks);
}

void WriteProgress(const MonitoringSnapshot& snapshot, MetricsText* text) {
  const ps::StatusReply& status = snapshot.status;
  const TrainingFigures& figures = snapshot.figures;
  text->Gauge("ps_global_step", "Steps applied.", static_cast<double>(status.version()));
  text->Gauge("ps_num_steps", "Steps to train; 0: without end, or not known yet.",
              static_cast<double>(status.num_steps()));
  text->Gauge("ps_epoch", "Rises with every start and rollback of the server.",
              static_cast<double>(status.epoch()));
  text->Gauge("ps_sync_mode", "1: barrier and average; 0: gradients are applied on arrival.",
              snapshot.identity.sync ? 1 : 0);
  text->Gauge("ps_replicas", "Replicas of the job now; 0: no clone has registered yet.",
              status.num_replicas());
  text->Gauge("ps_training_done", "1: all steps are applied and the last checkpoint is published.",
              status.training_done() ? 1 : 0);
  text->Gauge("ps_stopped", "1: training was stopped by a failure.",
              status.stopped().empty() ? 0 : 1);
  text->Gauge(
      "ps_waiting_seconds",
      "How long the step has been waiting for somebody; 0: it is not, or for less than 2 s.",
      status.waiting_seconds());
  text->Family("ps_loss", MetricType::Gauge, "Loss of the last step, mean over its samples.");
  if (figures.losses > 0) text->Sample(figures.loss);
  text->Family("ps_accuracy", MetricType::Gauge,
               "Share of the last step's images that were classified correctly.");
  if (figures.accuracy >= 0.0) text->Sample(figures.accuracy);
  text->Family("ps_learning_rate", MetricType::Gauge, "Learning rate of the last step.");
  if (figures.step > 0) text->Sample(figures.learning_rate);
  text->Gauge("ps_images_per_second", "Images trained on per second, over the last seconds.",
              figures.images_per_second);
  text->Gauge("ps_steps_per_second", "Steps applied per second, over the last seconds.",
              figures.steps_per_second);
  text->Counter("ps_images_total", "Images trained on since the server started.",
                static_cast<double>(figures.images));
  text->Counter("ps_dropped_contributions_total",
                "Contributions left out: missing when their step was decided (synchronous), or "
                "refused as stale (asynchronous).",
                static_cast<double>(status.dropped_contributions()));
  text->Counter("ps_void_contributions_total",
                "Contributions left out because a value in them was not finite.",
                static_cast<double>(status.void_contributions()));
  text->Counter("ps_duplicate_pushes_total", "Contributions that came again and were not counted.",
                static_cast<double>(status.duplicate_pushes()));
  text->Gauge("ps_rolled_back_steps", "Steps lost by the last recovery.",
              static_cast<double>(status.rolled_back_steps()));
  text->Family("ps_gradient_staleness_steps", MetricType::Histogram,
               "Versions applied between a gradient's pull and its use (asynchronous mode).");
  if (status.has_staleness()) text->Histogram({}, FromProto(status.staleness()));
  text->Family("ps_step_contributors", MetricType::Histogram,
               "Replicas that contributed to a step (synchronous mode).");
  if (status.has_contributors()) text->Histogram({}, FromProto(status.contributors()));
}

void WriteCheckpoints(const MonitoringSnapshot& snapshot, MetricsText* text) {
  const ps::StatusReply& status = snapshot.status;
  text->Counter("ps_checkpoints_total", "Checkpoints published since the server started.",
                static_cast<double>(status.checkpoints()));
  text->Counter("ps_checkpoint_failures_total", "Checkpoints that could not be published.",
                static_cast<double>(status.checkpoint_failures()));
  text->Gauge("ps_checkpoint_step", "Step of the newest published checkpoint.",
              static_cast<double>(status.durable_step()));
  text->Family("ps_checkpoint_last_success_timestamp_seconds", MetricType::Gauge,
               "When the newest checkpoint since the server started was published, Unix time.");
  if (status.checkpoints() > 0) {
    text->Sample(snapshot.unix_seconds - status.seconds_since_checkpoint());
  }
  text->Family("ps_checkpoint_duration_seconds", MetricType::Gauge,
               "From the decision to the publication, of the newest checkpoint.");
  if (status.checkpoints() > 0) text->Sample(status.last_checkpoint_seconds());
}

// Writes one family with a sample per clone. `value` returns nullopt for a value that is not known.
void WriteCloneFamily(const ps::StatusReply& status, absl::string_view name, MetricType type,
                      absl::string_view help,
                      const std::function<std::optional<double>(const ps::CloneStatus&)>& value,
                      MetricsText* text) {
  text->Family(name, type, help);
  for (const ps::CloneStatus& clone : status.clones()) {
    const std::optional<double> known = value(clone);
    if (known.has_value()) text->Sample({{"clone", absl::StrCat(clone.worker_id())}}, *known);
  }
}

void WriteClones(const MonitoringSnapshot& snapshot, MetricsText* text) {
  const ps::StatusReply& status = snapshot.status;
  using Known = std::optional<double>;
  using Clone = const ps::CloneStatus&;
  const auto seen = [](Clone clone) { return clone.seconds_since_seen() >= 0.0; };
  text->Family("ps_clone_info", MetricType::Gauge, "Always 1; host and process of a clone.");
  for (const ps::CloneStatus& clone : status.clones()) {
    if (!seen(clone)) continue;
    text->Sample(
        {{"clone", absl::StrCat(clone.worker_id())}, {"peer", clone.peer_name().substr(0, 128)}},
        1);
  }
  const std::set<uint32_t> late(status.late_clones().begin(), status.late_clones().end());
  const auto write = [&](absl::string_view name, MetricType type, absl::string_view help,
                         const std::function<Known(Clone)>& value) {
    WriteCloneFamily(status, name, type, help, value, text);
  };
  write("ps_clone_up", MetricType::Gauge, "1: the clone holds a lease.",
        [](Clone c) -> Known { return c.alive() ? 1 : 0; });
  write("ps_clone_evicted", MetricType::Gauge, "1: an administrator has taken the clone out.",
        [](Clone c) -> Known { return c.evicted() ? 1 : 0; });
  write("ps_clone_left", MetricType::Gauge, "1: the clone has said that it ends.",
        [](Clone c) -> Known { return c.left() ? 1 : 0; });
  write(
      "ps_clone_late", MetricType::Gauge,
      "1: the step has waited for this clone for 2 s or more: it is lost, others have contributed, "
      "or the step takes twice as long as usual.",
      [&](Clone c) -> Known { return late.count(c.worker_id()) > 0 ? 1 : 0; });
  write("ps_clone_replicas", MetricType::Gauge, "Replicas that the clone computes.",
        [](Clone c) -> Known { return c.replicas_size(); });
  write("ps_clone_samples_per_step", MetricType::Gauge,
        "Samples of each step that the clone computes, in synchronous mode.",
        [&](Clone c) -> Known {
          if (!status.sync()) return {};
          return static_cast<double>(c.samples_per_step());
        });
  write("ps_clone_last_seen_timestamp_seconds", MetricType::Gauge,
        "When the clone was last heard of, Unix time.", [&](Clone c) -> Known {
          if (!seen(c)) return {};
          return snapshot.unix_seconds - c.seconds_since_seen();
        });
  write("ps_clone_images_per_second", MetricType::Gauge, "Images per second, by the clone's clock.",
        [&](Clone c) -> Known {
          if (!c.alive()) return {};
          return c.progress().images_per_second();
        });
  write("ps_clone_loss", MetricType::Gauge, "Loss of the clone's last contribution.",
        [&](Clone c) -> Known {
          const auto it = snapshot.figures.clone_loss.find(c.worker_id());
          if (it == snapshot.figures.clone_loss.end()) return {};
          return it->second;
        });
  write("ps_clone_images_total", MetricType::Counter,
        "Images the clone has computed on since its process started.", [&](Clone c) -> Known {
          if (!seen(c)) return {};
          return static_cast<double>(c.progress().images());
        });
  write("ps_clone_contributions_total", MetricType::Counter, "Contributions that were applied.",
        [](Clone c) -> Known { return static_cast<double>(c.contributions()); });
  write("ps_clone_drops_total", MetricType::Counter, "Contributions that came too late.",
        [](Clone c) -> Known { return static_cast<double>(c.drops()); });
}

void WriteClonePhases(const ps::StatusReply& status, MetricsText* text) {
  text->Family("ps_clone_phase_seconds_total", MetricType::Counter,
               "Where the time of the clone's training thread has gone since its process started.");
  for (const ps::CloneStatus& clone : status.clones()) {
    if (!clone.progress().has_phase_seconds()) continue;
    const ps::PhaseSeconds& seconds = clone.progress().phase_seconds();
    const std::string id = absl::StrCat(clone.worker_id());
    text->Sample({{"clone", id}, {"phase", "input"}}, seconds.input());
    text->Sample({{"clone", id}, {"phase", "pull"}}, seconds.pull());
    text->Sample({{"clone", id}, {"phase", "compute"}}, seconds.compute());
    text->Sample({{"clone", id}, {"phase", "push"}}, seconds.push());
    text->Sample({{"clone", id}, {"phase", "wait"}}, seconds.wait());
  }
}

void WriteCloneGpus(const ps::StatusReply& status, MetricsText* text) {
  text->Family("ps_clone_gpu_info", MetricType::Gauge, "Always 1; the GPU of a clone.");
  for (const ps::CloneStatus& clone : status.clones()) {
    if (!clone.progress().has_gpu()) continue;
    text->Sample({{"clone", absl::StrCat(clone.worker_id())},
                  {"name", clone.progress().gpu().name().substr(0, 128)}},
                 1);
  }
  const auto write = [&](absl::string_view name, absl::string_view help,
                         double (*value)(const ps::GpuFigures&)) {
    WriteCloneFamily(
        status, name, MetricType::Gauge, help,
        [&](const ps::CloneStatus& clone) -> std::optional<double> {
          if (!clone.alive() || !clone.progress().has_gpu()) return {};
          return value(clone.progress().gpu());
        },
        text);
  };
  write("ps_clone_gpu_utilization_ratio",
        "Share of the last sampling period with a kernel running.",
        [](const ps::GpuFigures& gpu) { return gpu.utilization(); });
  write("ps_clone_gpu_memory_used_bytes", "Of the whole device.",
        [](const ps::GpuFigures& gpu) { return static_cast<double>(gpu.memory_used_bytes()); });
  write("ps_clone_gpu_memory_total_bytes", "Of the whole device.",
        [](const ps::GpuFigures& gpu) { return static_cast<double>(gpu.memory_total_bytes()); });
}

std::string ShardLabel(const ShardTraffic& traffic) { return absl::StrCat(traffic.shard); }

void WriteCalls(const MonitoringSnapshot& snapshot, PsMethod method, MetricsText* text,
                bool with_method) {
  for (const ShardTraffic& traffic : snapshot.shards) {
    for (int number = 0; number < RequestCounters::kNumCodes; ++number) {
      const auto code = static_cast<absl::StatusCode>(number);
      const uint64_t calls = traffic.counters->calls(method, code);
      if (calls == 0 && code != absl::StatusCode::kOk) continue;
      MetricLabels labels = {{"shard", ShardLabel(traffic)}};
      if (with_method) labels.push_back({"method", RowOf(method).name});
      labels.push_back({"code", absl::StatusCodeToString(code)});
      text->Sample(labels, static_cast<double>(calls));
    }
  }
}

void WriteTraffic(const MonitoringSnapshot& snapshot, MetricsText* text) {
  text->Family("ps_push_requests_total", MetricType::Counter, "Pushes answered, by status code.");
  WriteCalls(snapshot, PsMethod::kPush, text, false);
  text->Family("ps_pull_requests_total", MetricType::Counter, "Pulls answered, by status code.");
  WriteCalls(snapshot, PsMethod::kPull, text, false);
  text->Family("ps_requests_total", MetricType::Counter,
               "Other calls answered, by method and status code.");
  for (int i = 0; i < kNumPsMethods; ++i) {
    const auto method = static_cast<PsMethod>(i);
    if (method == PsMethod::kPush || method == PsMethod::kPull) continue;
    WriteCalls(snapshot, method, text, true);
  }
  const auto counter = [&](absl::string_view name, absl::string_view help,
                           uint64_t (RequestCounters::*value)() const) {
    text->Family(name, MetricType::Counter, help);
    for (const ShardTraffic& traffic : snapshot.shards) {
      text->Sample({{"shard", ShardLabel(traffic)}},
                   static_cast<double>((traffic.counters.get()->*value)()));
    }
  };
  counter("ps_push_received_bytes_total", "Gradient bytes received.",
          &RequestCounters::pushed_bytes);
  counter("ps_pull_sent_bytes_total", "Bytes of variables given to pulls, as encoded.",
          &RequestCounters::pulled_bytes);
  text->Family("ps_shard_version", MetricType::Gauge, "Version that was pulled last.");
  for (const ShardTraffic& traffic : snapshot.shards) {
    text->Sample({{"shard", ShardLabel(traffic)}},
                 static_cast<double>(traffic.counters->pulled_version()));
  }
  const auto histogram = [&](absl::string_view name, absl::string_view help,
                             HistogramValues (RequestCounters::*values)() const) {
    text->Family(name, MetricType::Histogram, help);
    for (const ShardTraffic& traffic : snapshot.shards) {
      text->Histogram({{"shard", ShardLabel(traffic)}}, (traffic.counters.get()->*values)());
    }
  };
  histogram("ps_push_duration_seconds", "From the last chunk of a push to its answer.",
            &RequestCounters::push_seconds);
  histogram("ps_pull_wait_seconds", "From a pull's request to the version it waits for.",
            &RequestCounters::pull_wait_seconds);
  histogram("ps_pull_duration_seconds", "From a pull's request to its last byte sent.",
            &RequestCounters::pull_seconds);
  if (snapshot.is_coordinator && snapshot.identity.sync && !snapshot.shards.empty()) {
    text->Family("ps_barrier_wait_seconds", MetricType::Histogram,
                 "From the first to the last contribution of a step (synchronous mode).");
    text->Histogram({}, snapshot.shards[0].counters->barrier_wait_seconds());
  }
}

void WriteProcess(const ProcessStats& process, MetricsText* text) {
  text->Counter("process_cpu_seconds_total", "CPU time in user and system.", process.cpu_seconds);
  text->Gauge("process_resident_memory_bytes", "Resident memory, mapped variables included.",
              static_cast<double>(process.resident_bytes));
  text->Gauge("process_virtual_memory_bytes", "Virtual memory.",
              static_cast<double>(process.virtual_bytes));
  text->Gauge("process_open_fds", "Open file descriptors.",
              static_cast<double>(process.open_descriptors));
  text->Gauge("process_max_fds", "File descriptors allowed.",
              static_cast<double>(process.max_descriptors));
  text->Gauge("process_start_time_seconds", "When the process started, Unix time.",
              process.start_unix_seconds);
  text->Gauge("process_threads", "Threads.", static_cast<double>(process.threads));
}

}  // namespace

std::string MetricsPage(const MonitoringSnapshot& snapshot) {
  MetricsText text;
  WriteBuild(snapshot, &text);
  if (snapshot.is_coordinator) {
    WriteProgress(snapshot, &text);
    WriteCheckpoints(snapshot, &text);
    WriteClones(snapshot, &text);
    WriteClonePhases(snapshot.status, &text);
    WriteCloneGpus(snapshot.status, &text);
  }
  WriteTraffic(snapshot, &text);
  WriteProcess(snapshot.process, &text);
  return text.Serialize();
}

}  // namespace pushpull

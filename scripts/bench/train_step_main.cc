// Measures one clone's training step on the CPU: images per second, and the time of each operator.
// Weights, images and labels are generated. scripts/bench/train_step adds a comparison.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

#include "common/base/cpu_isa.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/cli/exit_codes.h"
#include "common/cli/flag_checks.h"
#include "common/cli/main_support.h"
#include "kernels/cpu/fast_operators.h"
#include "kernels/profiled_operators.h"
#include "scripts/bench/median.h"
#include "scripts/bench/step/bench_network.h"
#include "scripts/bench/step/machine_limits.h"
#include "worker/model/host_runner.h"

ABSL_FLAG(std::vector<std::string>, cases, (std::vector<std::string>{"32:64", "96:32", "224:16"}),
          "image size and batch size of each case, size:batch[,size:batch...]");
ABSL_FLAG(
    std::string, model, "mobilenet_v2",
    "a classifier (mobilenet_v2, mobilenet_v3_large, resnet_v1_50, ...), or ssd_mobilenet_v1 or "
    "ssd_mobilenet_v2 (detectors as TensorFlow's sample configs have them)");
ABSL_FLAG(std::string, pipeline_config, "",
          "pipeline config whose network is measured, in place of --model, --cases, --width and "
          "--classes");
ABSL_FLAG(
    int, batch, 0,
    "with --pipeline_config: images per step; 0: train_config.batch_size, which is that of all "
    "clones together");
ABSL_FLAG(int, threads, 2, "CPU threads");
ABSL_FLAG(std::string, precision, "fp32", "precision of activations: fp32 or bf16");
ABSL_FLAG(std::string, cpu_isa, "auto",
          "instruction set: auto (the best one), sse4, avx2, avx512, avx512_bf16, "
          "amx_bf16 or neon");
ABSL_FLAG(double, width, 1.0, "depth multiplier");
ABSL_FLAG(int, classes, 1000, "number of classes");
ABSL_FLAG(int, repeats, 3, "measurements per case; the median is reported");
ABSL_FLAG(double, seconds, 3.0, "length of a measurement");
ABSL_FLAG(
    std::string, table, "operator",
    "rows of the time table: operator (one per kind), shape (one per kind and shape) or none");

namespace pushpull {
namespace {

using SteadyTime = std::chrono::steady_clock;

double SecondsSince(SteadyTime::time_point start) {
  return std::chrono::duration<double>(SteadyTime::now() - start).count();
}

struct Case {
  BenchNetwork network;
  int64_t batch = 0;  // images per step
};

absl::StatusOr<std::vector<Case>> CasesOfFlags() {
  std::vector<Case> cases;
  for (const std::string& text : absl::GetFlag(FLAGS_cases)) {
    const std::vector<std::string> parts = absl::StrSplit(text, ':');
    int size = 0, batch = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &size) ||
        !absl::SimpleAtoi(parts[1], &batch) || size < 32 || batch < 1) {
      return UsageError(absl::StrCat("--cases has \"", text,
                                     "\", expected size:batch with a size of at least 32"));
    }
    PP_ASSIGN_OR_RETURN(BenchNetwork network, MakeBenchNetwork({absl::GetFlag(FLAGS_model), size,
                                                                absl::GetFlag(FLAGS_classes),
                                                                absl::GetFlag(FLAGS_width)}));
    cases.push_back({std::move(network), batch});
  }
  return cases;
}

absl::StatusOr<std::vector<Case>> CasesOfConfig(const std::string& path) {
  for (const char* const flag : {"cases", "model", "classes", "width"}) {
    const absl::CommandLineFlag* const found = absl::FindCommandLineFlag(flag);
    if (found->CurrentValue() != found->DefaultValue()) {
      return UsageError(absl::StrCat("--", flag, " and --pipeline_config exclude each other: the ",
                                     "config has the network and its input"));
    }
  }
  PP_ASSIGN_OR_RETURN(BenchNetwork network, LoadBenchNetwork(path));
  const int64_t batch =
      absl::GetFlag(FLAGS_batch) > 0 ? absl::GetFlag(FLAGS_batch) : network.batch_size;
  std::vector<Case> cases;
  cases.push_back({std::move(network), batch});
  return cases;
}

// The operators of one step in program order, with the time of each in every profiled step.
class StepProfile : public OperatorProfiler {
 public:
  struct Entry {
    OperatorRecord record;
    std::vector<double> milliseconds;
  };

  void BeginStep() { position_ = 0; }
  void Record(const OperatorRecord& record) override {
    if (position_ == entries_.size()) entries_.push_back({record, {}});
    entries_[position_++].milliseconds.push_back(record.nanoseconds / 1e6);
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  size_t position_ = 0;
  std::vector<Entry> entries_;
};

struct TableRow {
  std::string label;
  int calls = 0;
  double milliseconds = 0.0;
  double flops = 0.0;
  double bytes = 0.0;
};

std::string ShapeLabel(const OperatorRecord& record) {
  return absl::StrFormat("%-20s %4dx%-4dx%-4d -> %4dx%-4dx%-4d k%d s%d", record.name, record.in.h,
                         record.in.w, record.in.c, record.out.h, record.out.w, record.out.c,
                         record.kernel, record.stride);
}

// Rows of the operators' time, largest first. The share of the limit is that of the time which the
// operator's arithmetic or its unavoidable bytes would take at the machine's limits.
void PrintTable(const StepProfile& profile, bool by_shape, const MachineLimits& limits) {
  std::vector<TableRow> rows;
  std::map<std::string, size_t> index;
  double total = 0.0;
  for (const StepProfile::Entry& entry : profile.entries()) {
    const std::string label = by_shape ? ShapeLabel(entry.record) : entry.record.name;
    const auto [it, added] = index.emplace(label, rows.size());
    if (added) rows.push_back({label});
    TableRow& row = rows[it->second];
    const double milliseconds = Median(entry.milliseconds);
    ++row.calls;
    row.milliseconds += milliseconds;
    row.flops += entry.record.flops;
    row.bytes += entry.record.bytes;
    total += milliseconds;
  }
  std::stable_sort(rows.begin(), rows.end(), [](const TableRow& a, const TableRow& b) {
    return a.milliseconds > b.milliseconds;
  });
  const int width = by_shape ? 60 : 24;
  std::cout << absl::StrFormat("  limits of the machine: %.0f GFLOP/s, %.1f GB/s\n",
                               limits.flops_per_second / 1e9, limits.bytes_per_second / 1e9);
  std::cout << absl::StrFormat("  %-*s %5s %9s %9s %8s %7s %9s\n", width, "operator", "calls", "ms",
                               "GFLOP/s", "GB/s", "share", "of limit");
  for (const TableRow& row : rows) {
    const double least =
        1e3 * std::max(row.flops / limits.flops_per_second, row.bytes / limits.bytes_per_second);
    std::cout << absl::StrFormat(
        "  %-*s %5d %9.3f %9.1f %8.1f %6.1f%% %8.0f%%\n", width, row.label, row.calls,
        row.milliseconds, row.flops / row.milliseconds / 1e6, row.bytes / row.milliseconds / 1e6,
        100.0 * row.milliseconds / total, 100.0 * least / row.milliseconds);
  }
  std::cout << absl::StrFormat("  %-*s %5d %9.3f\n", width, "all operators",
                               profile.entries().size(), total);
}

// A prepared network and batch of one case. T is the type of activations.
template <typename T>
class StepRunner {
 public:
  static absl::StatusOr<std::unique_ptr<StepRunner>> Create(const BenchNetwork& network,
                                                            int64_t batch_size,
                                                            Operators<T>* plain) {
    auto runner = std::make_unique<StepRunner>();
    runner->profiled_ = MakeProfiledOperators(plain, &runner->profile_);
    PP_ASSIGN_OR_RETURN(runner->network_,
                        MakeHostRunner(network.spec, network.layout, plain, {batch_size}));
    PP_ASSIGN_OR_RETURN(
        runner->profiled_network_,
        MakeHostRunner(network.spec, network.layout, runner->profiled_.get(), {batch_size}));
    runner->variables_ = InitialVariables(network);
    runner->gradient_.resize(runner->variables_.size());
    runner->batch_ = MakeBenchBatch(network.spec, batch_size);
    const absl::Span<const LabeledBox> objects(runner->batch_.objects);
    for (int64_t s = 0; s < batch_size; ++s) {
      const int32_t first = runner->batch_.first_object[s];
      runner->spans_.push_back(objects.subspan(first, runner->batch_.first_object[s + 1] - first));
    }
    return runner;
  }

  // Returns the seconds of one step.
  absl::StatusOr<double> Step(NetworkRunner* network) {
    const SteadyTime::time_point start = SteadyTime::now();
    const ImageBatch<float> batch{batch_.images.data(), batch_.labels.data(), batch_.samples,
                                  spans_.data()};
    PP_RETURN_IF_ERROR(
        network->ForwardBackward(variables_, batch, 0, absl::MakeSpan(gradient_), [](int64_t) {})
            .status());
    return SecondsSince(start);
  }

  struct Speed {
    double images_per_second = 0.0;
    double cpu_milliseconds = 0.0;  // all threads, per step
  };

  // Returns the median of `repeats` measurements. Each measurement is the median step of about
  // `seconds` seconds.
  absl::StatusOr<Speed> Measure(int repeats, double seconds) {
    std::vector<double> rates, cpu;
    for (int repeat = 0; repeat <= repeats; ++repeat) {
      std::vector<double> steps;
      // The first round of two steps only warms up.
      const SteadyTime::time_point start = SteadyTime::now();
      const std::clock_t cpu_start = std::clock();
      while (steps.size() < 2 || (repeat > 0 && SecondsSince(start) < seconds)) {
        PP_ASSIGN_OR_RETURN(const double step, Step(network_.get()));
        steps.push_back(step);
      }
      if (repeat == 0) continue;
      rates.push_back(static_cast<double>(batch_.samples) / Median(steps));
      cpu.push_back(1e3 * static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC /
                    static_cast<double>(steps.size()));
    }
    return Speed{Median(rates), Median(cpu)};
  }

  absl::StatusOr<const StepProfile*> Profile(double seconds) {
    PP_RETURN_IF_ERROR(Step(network_.get()).status());
    const SteadyTime::time_point start = SteadyTime::now();
    for (int step = 0; step < 3 || SecondsSince(start) < seconds; ++step) {
      profile_.BeginStep();
      PP_RETURN_IF_ERROR(Step(profiled_network_.get()).status());
    }
    return &profile_;
  }

  int64_t arena_bytes() const { return network_->arena_bytes(); }

 private:
  StepProfile profile_;
  std::unique_ptr<Operators<T>> profiled_;
  std::unique_ptr<NetworkRunner> network_;
  std::unique_ptr<NetworkRunner> profiled_network_;
  std::vector<float> variables_;
  std::vector<float> gradient_;
  BenchBatch batch_;
  std::vector<absl::Span<const LabeledBox>> spans_;
};

template <typename T>
absl::Status RunCase(const Case& c, Operators<T>* operators, ThreadPool* pool) {
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<StepRunner<T>> runner,
                      StepRunner<T>::Create(c.network, c.batch, operators));
  const double seconds = absl::GetFlag(FLAGS_seconds);
  PP_ASSIGN_OR_RETURN(const typename StepRunner<T>::Speed speed,
                      runner->Measure(absl::GetFlag(FLAGS_repeats), seconds));
  std::cout << absl::StrFormat(
                   "%dx%d batch %d: %.1f images/s, %.2f ms and %.2f CPU ms per step, %.0f MiB of "
                   "activations",
                   c.network.spec.input.height, c.network.spec.input.width, c.batch,
                   speed.images_per_second, 1e3 * c.batch / speed.images_per_second,
                   speed.cpu_milliseconds, runner->arena_bytes() / 1048576.0)
            << std::endl;
  const std::string table = absl::GetFlag(FLAGS_table);
  if (table == "none") return absl::OkStatus();
  PP_ASSIGN_OR_RETURN(const StepProfile* const profile, runner->Profile(seconds));
  const Precision precision =
      std::is_same_v<T, Bfloat16> ? Precision::kBfloat16 : Precision::kFloat;
  PrintTable(*profile, table == "shape", MeasureLimits(precision, pool));
  return absl::OkStatus();
}

template <typename T>
absl::Status RunCases(const std::vector<Case>& cases) {
  ThreadPool pool(absl::GetFlag(FLAGS_threads));
  const std::unique_ptr<Operators<T>> operators = MakeFastOperators<T>(&pool);
  for (const Case& c : cases) PP_RETURN_IF_ERROR(RunCase(c, operators.get(), &pool));
  return absl::OkStatus();
}

absl::Status Run() {
  PP_RETURN_IF_ERROR(CheckAtLeast("batch", absl::GetFlag(FLAGS_batch), 0));
  const std::string config = absl::GetFlag(FLAGS_pipeline_config);
  if (config.empty() && absl::GetFlag(FLAGS_batch) != 0) {
    return UsageError("--batch needs --pipeline_config: --cases has the batch sizes otherwise");
  }
  PP_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                      config.empty() ? CasesOfFlags() : CasesOfConfig(config));
  const std::string table = absl::GetFlag(FLAGS_table);
  if (table != "operator" && table != "shape" && table != "none") {
    return UsageError(absl::StrCat("--table is \"", table, "\", expected operator, shape or none"));
  }
  const absl::StatusOr<CpuIsa> isa = ParseCpuIsa(absl::GetFlag(FLAGS_cpu_isa));
  if (!isa.ok()) return UsageError(absl::StrCat("--cpu_isa: ", isa.status().message()));
  UseCpuIsa(*isa);
  if (absl::GetFlag(FLAGS_threads) < 1 || absl::GetFlag(FLAGS_repeats) < 1) {
    return UsageError("--threads and --repeats have to be at least 1");
  }
  const absl::StatusOr<Precision> precision = ParsePrecision(absl::GetFlag(FLAGS_precision));
  if (!precision.ok()) {
    return UsageError(absl::StrCat("--precision: ", precision.status().message()));
  }
  return *precision == Precision::kBfloat16 ? RunCases<Bfloat16>(cases) : RunCases<float>(cases);
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  pushpull::InitMain(argc, argv, {"Measures one clone's training step on the CPU."});
  return pushpull::FinishMain(pushpull::Run());
}

// Measures the store's apply pass on MobileNetV2's variables for each optimizer and several numbers
// of contributors, next to the bandwidth of memcpy in the same run.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"

#include "common/base/payload.h"
#include "common/base/random.h"
#include "common/base/thread_pool.h"
#include "common/model/model_layout.h"
#include "common/optimizer/apply_pass.h"
#include "common/optimizer/initial_state.h"
#include "ps_server/store/variable_store.h"
#include "scripts/bench/median.h"

ABSL_FLAG(int, threads, 0, "threads of the pass; 0: one per core");
ABSL_FLAG(int, steps, 60, "steps per measurement; the median counts");
ABSL_FLAG(int, tasks, 1, "parameter-server tasks; shard 0 is measured");
ABSL_FLAG(std::string, state_dir, "/dev/shm",
          "where the mapped file is made (and removed); empty: anonymous memory");

namespace pushpull {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the layout of MobileNetV2 1.0 with 1,000 classes.
VariableLayout MakeLayout() {
  config::TrainEvalPipelineConfig config;
  CHECK(google::protobuf::TextFormat::ParseFromString(
      "model { classifier { num_classes: 1000 "
      "image_resizer { fixed_shape_resizer { height: 224 width: 224 } } "
      "feature_extractor { type: 'mobilenet_v2' } } }",
      &config));
  return BuildVariableLayout(config);
}

OptimizerSpec MakeOptimizer(const std::string& name, const std::string& rest) {
  config::TrainConfig config;
  CHECK(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("optimizer { ", name,
                   " { learning_rate { constant_learning_rate { learning_rate: 1e-6 } } } } ",
                   rest),
      &config));
  return OptimizerSpec(config);
}

// Makes contributions whose chunks lie in separate memory, 16 bytes past a cache line, as chunks
// from the network do.
std::vector<GradientContribution> MakeContributions(const Sharding& sharding, int count) {
  std::vector<GradientContribution> contributions(count);
  for (int k = 0; k < count; ++k) {
    contributions[k].replica = k;
    contributions[k].samples = 10 + k;
    CounterRandom random(7, k);
    for (int chunk = 0; chunk < sharding.num_chunks(0); ++chunk) {
      const int64_t elements = sharding.chunk(0, chunk).size();
      auto bytes = std::make_shared<std::vector<float>>(elements + 4);
      for (float& value : *bytes) value = random.NextFloat() - 0.5f;
      const Payload payload{bytes, reinterpret_cast<const char*>(bytes->data() + 4),
                            static_cast<size_t>(elements) * sizeof(float)};
      contributions[k].chunks.push_back({ps::FLOAT32, payload});
    }
  }
  return contributions;
}

// Bytes per second that memcpy reads and writes, split among the threads, over memory far larger
// than the caches.
double MemcpyBytesPerSecond(ThreadPool* pool) {
  constexpr int64_t kBytes = 128 << 20;
  constexpr int64_t kPiece = 64 << 10;
  std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes, 2);
  std::vector<double> seconds;
  for (int i = 0; i < 9; ++i) {
    const double start = Now();
    pool->ParallelFor(kBytes / kPiece, [&](int64_t piece) {
      std::memcpy(to.data() + piece * kPiece, from.data() + piece * kPiece, kPiece);
    });
    seconds.push_back(Now() - start);
  }
  return 2.0 * kBytes / Median(seconds);
}

void Measure(const std::string& name, const std::string& rest, const VariableLayout& layout,
             const Sharding& sharding, double memcpy_rate, ThreadPool* pool) {
  const OptimizerSpec optimizer = MakeOptimizer(name, rest);
  VariableStoreOptions options;
  options.state_dir = absl::GetFlag(FLAGS_state_dir);
  options.name = absl::StrCat("apply_bench_", getpid());
  options.owner.run_id = std::string(16, 'b');
  options.owner.tasks = sharding.tasks();
  const auto store = VariableStore::Open(options, layout, optimizer).value();
  CHECK(store->RemoveFile().ok());
  FillInitialState(
      layout, store->range(), optimizer,
      [](int64_t, int64_t, int64_t count, float* out) { std::fill_n(out, count, 0.1f); },
      store->BeginFill(0).value());
  CHECK(store->Commit(1, "").ok());
  const ApplyPass pass(&layout, sharding, 0, optimizer, pool);
  for (int contributors = 1; contributors <= 3; ++contributors) {
    const auto contributions = MakeContributions(sharding, contributors);
    std::vector<double> seconds;
    std::vector<double> norm_seconds;
    for (int step = 0; step < absl::GetFlag(FLAGS_steps); ++step) {
      const double start = Now();
      std::vector<double> norms;
      const auto buffers = store->BeginApply().value();
      if (optimizer.measures_norms()) {
        norms = pass.MeasureNorms(buffers.version, contributions, buffers.from).value();
      }
      const double measured = Now();
      CHECK(pass.Run(buffers.version, contributions, norms, buffers.from, buffers.to).ok());
      CHECK(store->Commit(1, "").ok());
      norm_seconds.push_back(measured - start);
      seconds.push_back(Now() - measured);
    }
    const double median = Median(seconds);
    const double bytes = static_cast<double>(pass.BytesMoved(contributors));
    std::printf("%-28s %12d %9.2f %9.2f %9.1f %8.1f %8.2f\n",
                absl::StrCat(name, rest.empty() ? "" : " + clip").c_str(), contributors,
                Median(norm_seconds) * 1e3, median * 1e3, bytes / 1e6, bytes / median / 1e9,
                bytes / median / memcpy_rate);
  }
}

void Run() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  ThreadPool pool(absl::GetFlag(FLAGS_threads) > 0 ? absl::GetFlag(FLAGS_threads) : cores);
  const VariableLayout layout = MakeLayout();
  const Sharding sharding(layout.total_elements(), absl::GetFlag(FLAGS_tasks));
  const double memcpy_rate = MemcpyBytesPerSecond(&pool);
  std::printf(
      "%ld variables, %ld trainable parameters, shard of %.1f MB, %d threads, state in %s\n",
      static_cast<long>(layout.num_variables()),
      static_cast<long>(layout.num_trainable_parameters()),
      static_cast<double>(sharding.shard(0).size()) * 4 / 1e6, pool.num_threads(),
      absl::GetFlag(FLAGS_state_dir).empty() ? "anonymous memory"
                                             : absl::GetFlag(FLAGS_state_dir).c_str());
  std::printf("memcpy reads and writes %.1f GB/s\n\n", memcpy_rate / 1e9);
  std::printf("%-28s %12s %9s %9s %9s %8s %8s\n", "optimizer (with EMA)", "contributors",
              "norms/ms", "apply/ms", "MB", "GB/s", "x memcpy");
  const auto* const optimizers = config::Optimizer::descriptor()->FindOneofByName("optimizer");
  for (int i = 0; i < optimizers->field_count(); ++i) {
    Measure(optimizers->field(i)->name(), "", layout, sharding, memcpy_rate, &pool);
  }
  Measure("adam_optimizer", "gradient_clipping_by_norm: 0.1", layout, sharding, memcpy_rate, &pool);
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Times the apply pass: apply_bench [--threads=N] [--steps=N]");
  absl::ParseCommandLine(argc, argv);
  FLAGS_logtostderr = true;
  pushpull::Run();
  return 0;
}

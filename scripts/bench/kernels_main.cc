// Measures every operator of a training step of MobileNetV2 1.0, next to a matrix product in the
// cache and a copy in memory in the same run. Usage: kernels --batch=64 --size=32 --threads=2
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"

#include "common/base/cpu_isa.h"
#include "common/base/thread_pool.h"
#include "kernels/cpu/fast_operators.h"
#include "kernels/cpu/gemm.h"
#include "kernels/profiled_operators.h"
#include "scripts/bench/median.h"
#include "scripts/bench/mobilenet_chain.h"

ABSL_FLAG(int, batch, 64, "images per step");
ABSL_FLAG(int, size, 32, "height and width of an image");
ABSL_FLAG(int, classes, 10, "classes");
ABSL_FLAG(int, threads, 2, "threads");
ABSL_FLAG(std::string, cpu_isa, "auto",
          "instruction set: auto (the best one), sse4, avx2, avx512, avx512_bf16 or neon");
ABSL_FLAG(int, steps, 15, "timed steps; medians are shown");
ABSL_FLAG(bool, cpu_time, false, "count the calling thread's processor time; use with --threads=1");
ABSL_FLAG(bool, sgemm, false,
          "also time oneDNN's sgemm on the products of the network, on one thread");

namespace pushpull {
namespace {

// Returns the calling thread's processor time if --cpu_time is given. With one thread, this
// excludes the time of other processes.
int64_t ThreadNanoseconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1000000000 + time.tv_nsec;
}

using NowFunction = int64_t (*)();

template <typename F>
double MedianSeconds(int repeats, NowFunction now, F f) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const int64_t start = now();
    f();
    seconds.push_back((now() - start) * 1e-9);
  }
  return Median(seconds);
}

// GB/s of a copy by all threads, counting bytes read and bytes written. The data are far larger
// than the caches.
double CopyRate(ThreadPool* pool, NowFunction now) {
  constexpr int64_t kPart = 1 << 20, kParts = 128;
  const std::vector<char> from(kPart * kParts, 1);
  std::vector<char> to(from.size());
  const double seconds = MedianSeconds(7, now, [&] {
    pool->ParallelFor(kParts,
                      [&](int64_t i) { std::memcpy(&to[i * kPart], &from[i * kPart], kPart); });
  });
  return 2.0 * from.size() / seconds * 1e-9;
}

// GFLOP/s of the register tile on operands in the second-level cache, with all threads.
double ProductRate(ThreadPool* pool, NowFunction now) {
  constexpr int64_t kRows = 96, kInner = 192, kParts = 256;
  const Panels inner(kInner);
  const std::vector<float> a(kRows * kInner, 0.5f), b(kInner * 16, 0.5f);
  const double seconds = MedianSeconds(9, now, [&] {
    pool->ParallelFor(kParts, [&](int64_t) {
      alignas(64) float tile[kRows * 16];
      for (int i = 0; i < 4; ++i)
        MultiplyPanel(inner, inner.all(), a.data(), kRows, 0, kRows, b.data(), 16, tile);
    });
  });
  return 4 * 2.0 * kParts * kRows * kInner * 16 / seconds * 1e-9;
}

struct Row {
  std::string label;
  double flops = 0, bytes = 0;
  int calls = 0;                // per step
  std::vector<double> seconds;  // per step, the sum of all calls
};

class Table : public OperatorProfiler {
 public:
  void Record(const OperatorRecord& record) override {
    const std::string label =
        absl::StrCat(record.name, " ", record.in.h, "x", record.in.w, "x", record.in.c, "->",
                     record.out.c, " k", record.kernel, "s", record.stride);
    Row& row = rows_[label];
    if (row.calls == 0) {
      row.label = label;
      order_.push_back(label);
    }
    ++row.calls;
    row.flops += record.flops;
    row.bytes += record.bytes;
    step_[label] += record.nanoseconds * 1e-9;
  }
  // The first step only creates the rows of the table.
  void EndStep(bool keep) {
    for (const auto& [label, seconds] : step_) rows_[label].seconds.push_back(seconds);
    step_.clear();
    ++steps_;
    if (keep) return;
    for (auto& [label, row] : rows_) row.seconds.clear();
  }
  void Print(double product_rate, double copy_rate) const {
    double total = 0;
    for (const auto& [label, row] : rows_) total += Median(row.seconds);
    std::printf("%-46s %5s %8s %8s %7s %8s %7s %6s\n", "operator (height x width x channels)",
                "calls", "ms", "GFLOP/s", "of peak", "GB/s", "of copy", "share");
    for (const std::string& label : order_) {
      const Row& row = rows_.at(label);
      const double seconds = Median(row.seconds);
      const double flop_rate = row.flops / steps_ / seconds * 1e-9,
                   byte_rate = row.bytes / steps_ / seconds * 1e-9;
      std::printf("%-46s %5d %8.3f %8.1f %6.0f%% %8.1f %6.0f%% %5.1f%%\n", label.c_str(),
                  row.calls / steps_, seconds * 1e3, flop_rate, 100 * flop_rate / product_rate,
                  byte_rate, 100 * byte_rate / copy_rate, 100 * seconds / total);
    }
  }

 private:
  int steps_ = 0;
  std::map<std::string, Row> rows_;
  std::map<std::string, double> step_;
  std::vector<std::string> order_;
};

// Times the three products of the 1x1 convolutions: forward, input gradient, weight gradient.
void PrintSgemm(NowFunction now) {
  std::printf("%8s %6s %6s   sgemm GFLOP/s: %8s %8s %8s\n", "rows", "in", "out", "forward", "input",
              "weights");
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{16384, 16, 96},
                                                                   {4096, 24, 144},
                                                                   {4096, 144, 24},
                                                                   {1024, 32, 192},
                                                                   {256, 384, 64},
                                                                   {64, 160, 960},
                                                                   {64, 320, 1280}}) {
    std::vector<float> a(m * k, 0.5f), b(k * n, 0.5f), c(m * n, 0.5f);
    const double work = 2e-9 * m * k * n;
    const double forward = MedianSeconds(9, now, [&, m = m, k = k, n = n] {
      dnnl_sgemm('N', 'N', m, n, k, 1, a.data(), k, b.data(), n, 0, c.data(), n);
    });
    const double input = MedianSeconds(9, now, [&, m = m, k = k, n = n] {
      dnnl_sgemm('N', 'T', m, k, n, 1, c.data(), n, b.data(), n, 0, a.data(), k);
    });
    const double weights = MedianSeconds(9, now, [&, m = m, k = k, n = n] {
      dnnl_sgemm('T', 'N', k, n, m, 1, a.data(), k, c.data(), n, 0, b.data(), n);
    });
    std::printf("%8ld %6ld %6ld                  %8.1f %8.1f %8.1f\n", static_cast<long>(m),
                static_cast<long>(k), static_cast<long>(n), work / forward, work / input,
                work / weights);
  }
}

int Main() {
  const absl::StatusOr<CpuIsa> isa = ParseCpuIsa(absl::GetFlag(FLAGS_cpu_isa));
  if (!isa.ok()) {
    std::fprintf(stderr, "--cpu_isa: %s\n", std::string(isa.status().message()).c_str());
    return 64;
  }
  UseCpuIsa(*isa);
  const NowFunction now = absl::GetFlag(FLAGS_cpu_time) ? ThreadNanoseconds : SteadyNanoseconds;
  ThreadPool pool(absl::GetFlag(FLAGS_threads));
  const double copy_rate = CopyRate(&pool, now), product_rate = ProductRate(&pool, now);
  const auto operators = MakeFastOperators(&pool);
  Table table;
  const auto profiled = MakeProfiledOperators(operators.get(), &table, now);
  const int batch = absl::GetFlag(FLAGS_batch), steps = absl::GetFlag(FLAGS_steps);
  MobilenetChain chain(batch, absl::GetFlag(FLAGS_size), absl::GetFlag(FLAGS_classes), *operators);
  std::vector<double> seconds;
  for (int i = 0; i <= steps; ++i) {
    const int64_t start = now();
    chain.Step(profiled.get());
    const double elapsed = (now() - start) * 1e-9;
    table.EndStep(i > 0);
    if (i > 0) seconds.push_back(elapsed);
  }
  table.Print(product_rate, copy_rate);
  const double median = Median(seconds), best = *std::min_element(seconds.begin(), seconds.end());
  std::printf("step: median %.2f ms (%.0f images/s), best %.2f ms (%.0f images/s); %d threads\n",
              median * 1e3, batch / median, best * 1e3, batch / best, pool.num_threads());
  std::printf("in the same run: product in the cache %.1f GFLOP/s, copy in memory %.1f GB/s\n",
              product_rate, copy_rate);
  if (absl::GetFlag(FLAGS_sgemm)) PrintSgemm(now);
  return 0;
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return pushpull::Main();
}

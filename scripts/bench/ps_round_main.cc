// Times whole rounds of synchronous training without the training: every clone pushes a gradient,
// the server aggregates and applies the optimizer, and every clone pulls the new weights. Runs real
// processes, one ps_server and 1, 2 or 3 clones, over TCP, TLS, a Unix socket and shared memory,
// next to the lower bounds of the machine.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

#include "common/base/status_macros.h"
#include "common/cli/main_support.h"
#include "common/cli/security_flags.h"
#include "common/config/validate_config.h"
#include "common/model/model_layout.h"
#include "common/model/sharding.h"
#include "common/optimizer/apply_pass.h"
#include "common/optimizer/optimizer.h"
#include "scripts/bench/median.h"
#include "scripts/bench/round/child_process.h"
#include "scripts/bench/round/clone.h"
#include "scripts/bench/round/floors.h"
#include "scripts/bench/round/measured.h"

ABSL_FLAG(std::vector<std::string>, clones, std::vector<std::string>({"1", "2", "3"}),
          "numbers of clone processes");
ABSL_FLAG(std::vector<std::string>, transports, std::vector<std::string>({"tcp", "unix", "shm"}),
          "tcp, tls, unix, and shm: tcp with the chunks in shared memory; tls with tcp prints what "
          "it costs");
ABSL_FLAG(std::string, make_certs, "scripts/make_certs.sh", "makes the certificates for tls");
ABSL_FLAG(int, rounds, 60, "timed rounds of each combination");
ABSL_FLAG(int, warmup_rounds, 10, "untimed rounds before the timed ones");
ABSL_FLAG(int, repeats, 1,
          "runs of each combination, in turns with those of ZeroMQ; medians are printed");
ABSL_FLAG(std::string, optimizer, "momentum",
          "an optimizer of the pipeline config, without \"_optimizer\": momentum, adam, ...");
ABSL_FLAG(bool, moving_average, false, "the server keeps an exponential moving average too");
ABSL_FLAG(std::string, ps_server, "", "the server's binary; default: beside this one");
ABSL_FLAG(std::string, client, "cpp",
          "cpp, or python: the clones are Python programs, and the model has as many elements");
ABSL_FLAG(std::string, python, "python3", "for --client=python: an interpreter with numpy");
ABSL_FLAG(std::string, python_clone, "scripts/bench/round/python_clone.py",
          "for --client=python: the program of a clone");
ABSL_FLAG(std::string, clone_of, "", "internal: run as a clone of the server at this address");
ABSL_FLAG(int, clone_index, 0, "internal: number of this clone");
ABSL_FLAG(int, num_clones, 1, "internal: clones of this run");
ABSL_FLAG(std::string, gradient_precision, "fp32", "internal: as the worker's flag");
ABSL_FLAG(std::string, weight_precision, "fp32", "internal: as the worker's flag");
ABSL_FLAG(bool, shared_memory, false, "internal: chunks go through shared memory");

namespace pushpull {
namespace {

// MobileNetV2 1.0 with 1,000 classes: 3.5 million parameters.
constexpr char kMobileNet[] = R"(
model {
  classifier {
    num_classes: 1000
    num_channels: 3
    image_resizer { fixed_shape_resizer { height: 224 width: 224 } }
    feature_extractor {
      type: "mobilenet_v2"
      conv_hyperparams {
        activation: RELU_6
        regularizer { l2_regularizer { weight: 0.00004 } }
        initializer { truncated_normal_initializer { stddev: 0.09 } }
        batch_norm { decay: 0.997 scale: true center: true epsilon: 0.001 }
      }
    }
  }
}
)";
// The same number of elements, declared by the clones.
constexpr char kExternal[] = R"(model { external { name: "ps_round" } }
)";
constexpr char kTraining[] = R"(
train_config {
  batch_size: 96
  sync_replicas: true
  num_steps: 1000000
  optimizer {
    %s_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.001 } } }
    use_moving_average: %s
  }
}
)";
constexpr char kReaders[] = R"(
train_input_reader { image_folder_input_reader { path: "none" } }
eval_input_reader { image_folder_input_reader { path: "none" } }
)";

std::string Training() {
  return absl::StrFormat(kTraining, absl::GetFlag(FLAGS_optimizer),
                         absl::GetFlag(FLAGS_moving_average) ? "true" : "false");
}

double Milliseconds(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

struct Model {
  int64_t gradient_bytes = 0;
  int64_t state_bytes = 0;           // one version: weights, slots, EMA
  std::vector<int64_t> apply_bytes;  // by number of clones, starting with 0
  double bytes_per_ms = 0;           // bandwidth of memcpy, read and written
};

class Benchmark {
 public:
  Benchmark(std::string self, std::string folder) : self_(std::move(self)), folder_(folder) {}

  absl::Status Run();

 private:
  absl::Status ReadModel(const std::string& config);
  // The program of a clone and the flags that it alone needs.
  std::vector<std::string> CloneProgram() const;
  absl::StatusOr<Measured> RunServer(const std::string& transport, int clones);
  absl::StatusOr<std::unique_ptr<ChildProcess>> StartServer(const std::string& transport,
                                                            const std::string& address, int clones);
  absl::Status MakeCertificates() const;
  // Flags for a child that uses the certificate of that name. Empty for transports other than TLS.
  std::vector<std::string> TlsFlags(const std::string& transport, const std::string& name) const;
  // Median milliseconds of a round of the ZeroMQ server at this endpoint. No value if it was not
  // built.
  absl::StatusOr<std::optional<double>> MeasureZeroMq(const std::string& endpoint, int clones);
  // One run of the combination, with plain sockets before it and ZeroMQ after it.
  absl::StatusOr<Measured> MeasureOnce(const std::string& transport, int clones);
  absl::Status MeasureTransports(int clones);

  const std::string self_;
  const std::string folder_;
  Model model_;
};

absl::Status Benchmark::ReadModel(const std::string& config_text) {
  PP_ASSIGN_OR_RETURN(const auto config, ParseValidConfig(config_text, {}, "ps_round"));
  const VariableLayout layout = BuildVariableLayout(config);
  const OptimizerSpec optimizer(config.train_config());
  const Sharding sharding(layout.total_elements(), 1);
  ThreadPool pool(1);
  const ApplyPass pass(&layout, sharding, 0, optimizer, &pool);
  model_.gradient_bytes = layout.total_elements() * 4;
  model_.state_bytes =
      model_.gradient_bytes * (1 + optimizer.num_slots() + (optimizer.has_ema ? 1 : 0));
  for (int n = 0; n <= 16; ++n) model_.apply_bytes.push_back(pass.BytesMoved(n));
  return absl::OkStatus();
}

absl::Status Benchmark::MakeCertificates() const {
  PP_ASSIGN_OR_RETURN(
      const auto process,
      ChildProcess::Start({absl::GetFlag(FLAGS_make_certs),
                           absl::StrCat("--out=", folder_, "/certs"), "--job=ps_round",
                           "--ps=127.0.0.1", "--workers=1", "--clones=any"}));
  std::string last;
  for (auto line = process->ReadLine(); line.ok(); line = process->ReadLine()) last = *line;
  if (std::filesystem::exists(absl::StrCat(folder_, "/certs/worker-0.key")))
    return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(absl::GetFlag(FLAGS_make_certs), " made no certificates: ", last));
}

std::vector<std::string> Benchmark::TlsFlags(const std::string& transport,
                                             const std::string& name) const {
  if (transport != "tls") return {};
  return {absl::StrCat("--tls_ca=", folder_, "/certs/ca.pem"),
          absl::StrCat("--tls_cert=", folder_, "/certs/", name, ".pem"),
          absl::StrCat("--tls_key=", folder_, "/certs/", name, ".key")};
}

absl::StatusOr<std::unique_ptr<ChildProcess>> Benchmark::StartServer(const std::string& transport,
                                                                     const std::string& address,
                                                                     int clones) {
  std::string binary = absl::GetFlag(FLAGS_ps_server);
  if (binary.empty()) {
    binary = (std::filesystem::path(self_).parent_path() / "ps_server").string();
  }
  const std::string train_dir = absl::StrCat(folder_, "/train");
  std::filesystem::remove_all(train_dir);
  std::vector<std::string> command = {
      binary,
      "--tasks=1",
      absl::StrCat("--listen=", address),
      absl::StrCat("--pipeline_config_path=", folder_, "/pipeline.config"),
      absl::StrCat("--train_dir=", train_dir),
      absl::StrCat("--num_replicas=", clones)};
  const std::vector<std::string> tls = TlsFlags(transport, "ps-0");
  command.insert(command.end(), tls.begin(), tls.end());
  return ChildProcess::Start(command, absl::StrCat(folder_, "/ps_server.log"));
}

std::vector<std::string> Benchmark::CloneProgram() const {
  if (absl::GetFlag(FLAGS_client) == "cpp") return {self_};
  return {"/usr/bin/env", absl::GetFlag(FLAGS_python), absl::GetFlag(FLAGS_python_clone),
          absl::StrCat("--elements=", model_.gradient_bytes / sizeof(float))};
}

absl::StatusOr<Measured> Benchmark::RunServer(const std::string& transport, int clones) {
  const std::string address = transport == "unix"
                                  ? absl::StrCat("unix:", folder_, "/ps.sock")
                                  : absl::StrCat("127.0.0.1:", 20000 + getpid() % 20000 + clones +
                                                                   (transport == "tls"   ? 16
                                                                    : transport == "shm" ? 32
                                                                                         : 0));
  PP_ASSIGN_OR_RETURN(auto server, StartServer(transport, address, clones));
  std::vector<std::unique_ptr<ChildProcess>> processes;
  for (int i = 0; i < clones; ++i) {
    std::vector<std::string> command = CloneProgram();
    const std::vector<std::string> flags = {
        absl::StrCat("--clone_of=", address),
        absl::StrCat("--clone_index=", i),
        absl::StrCat("--num_clones=", clones),
        absl::StrCat("--shared_memory=", transport == "shm" ? "true" : "false"),
        absl::StrCat("--rounds=", absl::GetFlag(FLAGS_rounds)),
        absl::StrCat("--warmup_rounds=", absl::GetFlag(FLAGS_warmup_rounds))};
    command.insert(command.end(), flags.begin(), flags.end());
    const std::vector<std::string> tls = TlsFlags(transport, "worker-0");
    command.insert(command.end(), tls.begin(), tls.end());
    PP_ASSIGN_OR_RETURN(auto process, ChildProcess::Start(command));
    processes.push_back(std::move(process));
  }
  std::vector<double> push, round, cpu;
  for (auto& process : processes) {
    for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
      const auto line = process->ReadLine();
      const std::vector<std::string> words = absl::StrSplit(line.value_or(""), ' ');
      double push_ms, round_ms, cpu_ms;
      if (words.size() != 3 || !absl::SimpleAtod(words[2], &cpu_ms) ||
          !absl::SimpleAtod(words[0], &push_ms) || !absl::SimpleAtod(words[1], &round_ms)) {
        return absl::UnavailableError(
            absl::StrCat("a clone failed; see above and ", folder_, "/ps_server.log"));
      }
      push.push_back(push_ms);
      round.push_back(round_ms);
      cpu.push_back(cpu_ms);
    }
  }
  Measured result;
  result.push_ms = Median(push);
  result.round_ms = Median(round);
  result.clone_cpu_ms = Median(cpu);
  PP_ASSIGN_OR_RETURN(const absl::Duration server_cpu, server->CpuTime());
  result.server_cpu_ms =
      Milliseconds(server_cpu) / (absl::GetFlag(FLAGS_rounds) + absl::GetFlag(FLAGS_warmup_rounds));
  PP_ASSIGN_OR_RETURN(const int64_t rss, server->PeakRssBytes());
  result.rss_mb = rss / 1e6;
  processes.clear();
  server->Stop();
  return result;
}

absl::StatusOr<std::optional<double>> Benchmark::MeasureZeroMq(const std::string& endpoint,
                                                               int clones) {
  const std::string binary = (std::filesystem::path(self_).parent_path() / "zeromq_round").string();
  if (!std::filesystem::exists(binary)) return std::optional<double>();
  PP_ASSIGN_OR_RETURN(
      const auto process,
      ChildProcess::Start({binary, absl::StrCat("--endpoint=", endpoint),
                           absl::StrCat("--clones=", clones),
                           absl::StrCat("--elements=", model_.gradient_bytes / sizeof(float)),
                           absl::StrCat("--rounds=", absl::GetFlag(FLAGS_rounds)),
                           absl::StrCat("--warmup_rounds=", absl::GetFlag(FLAGS_warmup_rounds))}));
  double milliseconds = 0;
  if (!absl::SimpleAtod(process->ReadLine().value_or(""), &milliseconds)) {
    return absl::UnavailableError(absl::StrCat(binary, " failed; see above"));
  }
  return milliseconds;
}

absl::StatusOr<Measured> Benchmark::MeasureOnce(const std::string& transport, int clones) {
  const SocketKind kind = transport == "unix" ? SocketKind::kUnix : SocketKind::kTcp;
  PP_ASSIGN_OR_RETURN(
      const absl::Duration sockets,
      MeasureSocketRound(kind, clones, model_.gradient_bytes, absl::GetFlag(FLAGS_rounds)));
  PP_ASSIGN_OR_RETURN(Measured measured, RunServer(transport, clones));
  measured.sockets_ms = Milliseconds(sockets);
  if (transport == "tls") return measured;  // the ZeroMQ server has no encryption
  PP_ASSIGN_OR_RETURN(measured.zeromq_tcp_ms, MeasureZeroMq("tcp://127.0.0.1:*", clones));
  PP_ASSIGN_OR_RETURN(measured.zeromq_ipc_ms, MeasureZeroMq("ipc://*", clones));
  return measured;
}

absl::Status Benchmark::MeasureTransports(int clones) {
  const std::vector<std::string> transports = absl::GetFlag(FLAGS_transports);
  std::map<std::string, std::vector<Measured>> runs;
  for (int i = 0; i < absl::GetFlag(FLAGS_repeats); ++i) {
    for (const std::string& transport : transports) {
      PP_ASSIGN_OR_RETURN(const Measured measured, MeasureOnce(transport, clones));
      runs[transport].push_back(measured);
    }
  }
  std::map<std::string, Measured> all;
  for (const std::string& transport : transports) {
    const Measured& measured = all[transport] = MedianOf(runs[transport]);
    const double apply_ms = model_.apply_bytes[clones] / model_.bytes_per_ms;
    const double floor_ms = measured.sockets_ms + apply_ms;
    const double allowed_mb =
        (2 * model_.state_bytes + clones * model_.gradient_bytes) / 1e6 + 64 * 1.048576;
    absl::PrintF(
        "%-9s %6d | %6.2f %6.2f | %s | %s | %7.2f %6.2f %6.2f %11.2f | %6.2f %6.2f | %6.1f %8.1f\n",
        transport, clones, measured.push_ms, measured.round_ms,
        AgainstZeroMq(measured.round_ms, measured.zeromq_tcp_ms),
        AgainstZeroMq(measured.round_ms, measured.zeromq_ipc_ms), measured.sockets_ms, apply_ms,
        floor_ms, measured.round_ms / floor_ms, measured.clone_cpu_ms, measured.server_cpu_ms,
        measured.rss_mb, allowed_mb);
  }
  std::fflush(stdout);
  if (all.count("tcp") == 0 || all.count("tls") == 0) return absl::OkStatus();
  const Measured& plain = all["tcp"];
  const Measured& tls = all["tls"];
  absl::PrintF(
      "tls/tcp   %6d | %.2f of the rounds per second, CPU of a clone x %.2f, of the server x "
      "%.2f\n",
      clones, plain.round_ms / tls.round_ms, tls.clone_cpu_ms / plain.clone_cpu_ms,
      tls.server_cpu_ms / plain.server_cpu_ms);
  return absl::OkStatus();
}

absl::Status Benchmark::Run() {
  const std::string config = absl::StrCat(kMobileNet, Training(), kReaders);
  for (const std::string& transport : absl::GetFlag(FLAGS_transports)) {
    if (transport == "tls") {
      PP_RETURN_IF_ERROR(MakeCertificates());
    } else if (transport != "tcp" && transport != "unix" && transport != "shm") {
      return absl::InvalidArgumentError(
          absl::StrCat("--transports: \"", transport, "\", expected tcp, tls, unix or shm"));
    }
  }
  if (absl::GetFlag(FLAGS_repeats) < 1) {
    return absl::InvalidArgumentError("--repeats: expected 1 or more");
  }
  const std::string client = absl::GetFlag(FLAGS_client);
  if (client != "cpp" && client != "python") {
    return absl::InvalidArgumentError(
        absl::StrCat("--client=", client, ", expected cpp or python"));
  }
  std::ofstream(absl::StrCat(folder_, "/pipeline.config"))
      << (client == "cpp" ? config : absl::StrCat(kExternal, Training()));
  PP_RETURN_IF_ERROR(ReadModel(config));
  const double memcpy_ms = Milliseconds(MeasureMemcpy(model_.gradient_bytes, 50));
  model_.bytes_per_ms = 2 * model_.gradient_bytes / memcpy_ms;
  absl::PrintF(
      "gradient %.2f MB, state (one version) %.2f MB, optimizer %s, memcpy of the gradient %.2f ms "
      "(%.1f GB/s read + written)\n\n",
      model_.gradient_bytes / 1e6, model_.state_bytes / 1e6, absl::GetFlag(FLAGS_optimizer),
      memcpy_ms, model_.bytes_per_ms / 1e6);
  absl::PrintF(
      "                 | milliseconds  | ZeroMQ tcp   | ZeroMQ ipc   | limits of the machine, ms  "
      " "
      "      | CPU ms        | server RSS, MB\n"
      "transport clones |   push  round |     ms ratio |     ms ratio | sockets  apply  floor "
      "round/floor |  clone server |   peak  allowed\n");
  for (const std::string& text : absl::GetFlag(FLAGS_clones)) {
    int clones = 0;
    if (!absl::SimpleAtoi(text, &clones) || clones < 1 || clones > 16) {
      return absl::InvalidArgumentError(absl::StrCat("--clones=", text, ": expected 1 to 16"));
    }
    PP_RETURN_IF_ERROR(MeasureTransports(clones));
  }
  return absl::OkStatus();
}

absl::Status RunClone() {
  CloneOptions options;
  options.address = absl::GetFlag(FLAGS_clone_of);
  options.clone = absl::GetFlag(FLAGS_clone_index);
  options.num_clones = absl::GetFlag(FLAGS_num_clones);
  options.shared_memory = absl::GetFlag(FLAGS_shared_memory);
  options.gradient_codec = FindGradientCodec(absl::GetFlag(FLAGS_gradient_precision));
  options.weight_codec = FindWeightCodec(absl::GetFlag(FLAGS_weight_precision));
  if (options.gradient_codec == nullptr || options.weight_codec == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gradient_precision: one of ", GradientCodecFlags(),
                     "; --weight_precision: ", "one of ", WeightCodecFlags()));
  }
  const int warmup = absl::GetFlag(FLAGS_warmup_rounds);
  options.rounds = warmup + absl::GetFlag(FLAGS_rounds);
  PP_ASSIGN_OR_RETURN(options.security, TransportSecurityFromFlags());
  PP_ASSIGN_OR_RETURN(const std::vector<RoundTimes> times, RunRounds(options));
  for (int i = warmup; i < options.rounds; ++i) {
    absl::PrintF("%.4f %.4f %.4f\n", Milliseconds(times[i].push), Milliseconds(times[i].total),
                 Milliseconds(times[i].cpu));
  }
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status RunBenchmark(const std::string& self) {
  const std::string folder =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/ps_round_", getpid());
  std::filesystem::create_directories(folder);
  const absl::Status status = Benchmark(self, folder).Run();
  if (status.ok()) std::filesystem::remove_all(folder);
  return status;
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  pushpull::MainOptions options;
  options.usage = "times full synchronous rounds of push, optimizer and pull";
  pushpull::InitMain(argc, argv, options);
  if (!absl::GetFlag(FLAGS_clone_of).empty()) return pushpull::FinishMain(pushpull::RunClone());
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  return pushpull::FinishMain(pushpull::RunBenchmark(self));
}

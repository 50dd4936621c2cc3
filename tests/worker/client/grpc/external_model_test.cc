// Jobs with a model that the server does not know: a program declares its variables.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_reader.h"
#include "common/model/initializers.h"
#include "ps_server/runtime/server.h"
#include "tests/worker/client/grpc/client_testing.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kModelSteps = 20;

// A ps_server in this process that trains an external model. Everything but the constructor and
// Kill runs on a thread of its own, as in the program.
class ExternalServer {
 public:
  explicit ExternalServer(const std::string& folder, int tasks = 1) : folder_(folder) {
    config_ = MakeTinyConfig("");
    config_.clear_model();
    config_.mutable_model()->mutable_external()->set_name("toy");
    options_.config = config_;
    options_.train_dir = folder + "/train";
    options_.state_dir = folder + "/state";
    options_.listen = absl::StrCat("unix:", folder, "/ps");
    options_.tasks = tasks;
  }
  ~ExternalServer() { Kill(); }

  void Start() {
    killed_.store(false);
    thread_ = std::thread([this] { Run(); });
  }
  // Ends like SIGKILL.
  void Kill() {
    killed_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  // Blocks until the job has ended.
  void Join() { thread_.join(); }

  const std::string& address() const { return options_.listen; }

  // The last checkpoint's list of what the clones compute on.
  std::vector<std::string> Devices() {
    const auto checkpoint = Checkpoint::Open(files_, options_.train_dir, kModelSteps);
    if (checkpoint.ok()) return (*checkpoint)->manifest().devices;
    ADD_FAILURE() << checkpoint.status();
    return {};
  }
  // The weights in the last checkpoint.
  std::vector<float> Weights(const VariableLayout& layout) {
    const auto checkpoint = Checkpoint::Open(files_, options_.train_dir, kModelSteps);
    if (!checkpoint.ok()) {
      ADD_FAILURE() << checkpoint.status();
      return {};
    }
    std::vector<float> weights(layout.total_elements());
    EXPECT_EQ((*checkpoint)->ReadWeights(layout, {0, layout.total_elements()}, weights.data()),
              absl::OkStatus());
    return weights;
  }

 private:
  void Run() {
    ServerOptions options = options_;
    options.stop_requested = [this] { return killed_.load(); };
    auto server = Server::Create(std::move(options), &files_, &clock_);
    if (killed_.load()) return;
    ASSERT_TRUE(server.ok()) << server.status();
    for (;;) {
      const std::optional<absl::Status> end = (*server)->WaitForEnd(absl::Milliseconds(5));
      if (killed_.load()) return;
      if (!end.has_value()) continue;
      EXPECT_EQ(*end, absl::OkStatus());
      (*server)->Stop(*end);
      return;
    }
  }

  const std::string folder_;
  config::TrainEvalPipelineConfig config_;
  ServerOptions options_;
  PosixFileSystem files_;
  SteadyClock clock_;
  std::atomic<bool> killed_{false};
  std::thread thread_;
};

class ExternalModelTest : public ::testing::Test {
 protected:
  ExternalModelTest() : program_(layout_) {
    std::vector<float> flat(layout_.total_elements());
    const uint64_t seed = MakeTinyConfig("").train_config().seed();
    InitializeVariables(layout_, seed, absl::MakeSpan(flat));
    for (int64_t i = 0; i < layout_.num_variables(); ++i) {
      std::copy_n(flat.begin() + layout_.offset(i), layout_.num_elements(i),
                  program_.values[i].begin());
    }
  }

  PushpullCloneOptions OptionsOf(const ExternalServer& server, uint32_t worker_id,
                                 uint32_t num_replicas, uint64_t process_number = 1) {
    PushpullCloneOptions options = OptionsFor(server.address().c_str());
    options.worker_id = worker_id;
    options.num_replicas = num_replicas;
    options.session = 100 + worker_id;
    options.process_number = process_number;
    return options;
  }

  int Start(PushpullClone* clone, bool with_values = true) {
    return pushpull_clone_start(clone, program_.variables.data(), layout_.num_variables(),
                                with_values ? program_.value_pointers.data() : nullptr,
                                ToyGradientSource::kNumImages);
  }

  // The weights at the end of the same job with a layout that the server knows.
  std::vector<float> Expected(uint32_t clones) {
    std::vector<float> state = TrainedState(clones);
    state.resize(layout_.total_elements());
    return state;
  }

  const VariableLayout layout_ = MakeToyLayout();
  ProgramVariables program_;
  TestFolder folder_;
};

TEST_F(ExternalModelTest, TheFirstOfSeveralProgramsDeclaresTheModel) {
  const std::vector<float> expected = Expected(3);
  for (const int tasks : {1, 2}) {
    const TestFolder folder;
    ExternalServer server(folder.path(), tasks);
    server.Start();
    std::vector<std::thread> programs;
    for (uint32_t k = 0; k < 3; ++k) {
      programs.emplace_back([&, k] {
        const PushpullCloneOptions options = OptionsOf(server, k, 3);
        const ClonePtr clone(pushpull_clone_new(&options));
        EXPECT_EQ(pushpull_clone_connect(clone.get()), PUSHPULL_OK)
            << pushpull_clone_error(clone.get());
        PushpullJob job;
        pushpull_clone_job(clone.get(), &job);
        EXPECT_EQ(job.batch_size, 31);
        EXPECT_EQ(std::string(job.external_name), "toy");
        EXPECT_EQ(pushpull_clone_computes_on(clone.get(), "a machine", nullptr), PUSHPULL_OK);
        EXPECT_EQ(Start(clone.get()), PUSHPULL_OK) << pushpull_clone_error(clone.get());
        EXPECT_EQ(TrainToTheEnd(clone.get(), ToyProgram(layout_, 3)), PUSHPULL_OK)
            << pushpull_clone_error(clone.get());
      });
    }
    for (std::thread& program : programs) program.join();
    server.Join();
    EXPECT_EQ(server.Weights(layout_), expected) << tasks << " tasks";
    EXPECT_THAT(server.Devices(), ElementsAre("a machine"));
  }
}

TEST_F(ExternalModelTest, ADeclarationNeedsInitialValues) {
  ExternalServer server(folder_.path());
  server.Start();
  const PushpullCloneOptions options = OptionsOf(server, 0, 1);
  const ClonePtr clone(pushpull_clone_new(&options));
  ASSERT_EQ(pushpull_clone_connect(clone.get()), PUSHPULL_OK) << pushpull_clone_error(clone.get());
  PushpullJob job;
  pushpull_clone_job(clone.get(), &job);
  EXPECT_EQ(job.awaits_variables, 1);
  EXPECT_EQ(Start(clone.get(), /*with_values=*/false), PUSHPULL_INVALID_ARGUMENT);
  EXPECT_THAT(pushpull_clone_error(clone.get()), HasSubstr("toy/conv/weights"));
  program_.variables[2].l2_weight = -1.0f;
  EXPECT_EQ(Start(clone.get()), PUSHPULL_INVALID_ARGUMENT) << "the server refuses it";
  EXPECT_THAT(pushpull_clone_error(clone.get()), HasSubstr("toy/dense/weights"));
}

TEST_F(ExternalModelTest, ALaterProgramNeedsTheSameVariables) {
  ExternalServer server(folder_.path());
  server.Start();
  const PushpullCloneOptions options = OptionsOf(server, 0, 2);
  const ClonePtr first(pushpull_clone_new(&options));
  ASSERT_EQ(pushpull_clone_connect(first.get()), PUSHPULL_OK);
  ASSERT_EQ(Start(first.get()), PUSHPULL_OK) << pushpull_clone_error(first.get());
  const PushpullCloneOptions other_options = OptionsOf(server, 1, 2);
  const ClonePtr other(pushpull_clone_new(&other_options));
  ASSERT_EQ(pushpull_clone_connect(other.get()), PUSHPULL_OK);
  PushpullJob job;
  pushpull_clone_job(other.get(), &job);
  EXPECT_EQ(job.awaits_variables, 0);
  const int64_t shape[] = {71};
  program_.variables[3].shape = shape;
  EXPECT_EQ(Start(other.get()), PUSHPULL_FAILED_PRECONDITION);
  EXPECT_THAT(pushpull_clone_error(other.get()), HasSubstr("toy/dense/biases is [70]"));
}

// An attribute that a program changes would have no effect, since the server has its own.
TEST_F(ExternalModelTest, ARestartedJobNeedsTheSameAttributes) {
  program_.variables[0].frozen = 1;
  ExternalServer server(folder_.path());
  server.Start();
  const PushpullCloneOptions options = OptionsOf(server, 0, 1);
  {
    const ClonePtr clone(pushpull_clone_new(&options));
    ASSERT_EQ(pushpull_clone_connect(clone.get()), PUSHPULL_OK);
    ASSERT_EQ(Start(clone.get()), PUSHPULL_OK) << pushpull_clone_error(clone.get());
  }
  server.Kill();
  server.Start();
  const PushpullCloneOptions again = OptionsOf(server, 0, 1, 2);
  const auto start = [&](auto change, auto undo) {
    change();
    const ClonePtr clone(pushpull_clone_new(&again));
    EXPECT_EQ(pushpull_clone_connect(clone.get()), PUSHPULL_OK);
    const int code = Start(clone.get());
    undo();
    return std::pair<int, std::string>(code, pushpull_clone_error(clone.get()));
  };
  PushpullVariable& frozen = program_.variables[0];
  const auto thawed = start([&] { frozen.frozen = 0; }, [&] { frozen.frozen = 1; });
  EXPECT_EQ(thawed.first, PUSHPULL_FAILED_PRECONDITION);
  EXPECT_THAT(thawed.second, HasSubstr("toy/conv/weights has frozen true at the server and false"));
  PushpullVariable& last = program_.variables[3];
  const auto slower = start([&] { last.learning_rate_multiplier = 0.5f; },
                            [&] { last.learning_rate_multiplier = 1; });
  EXPECT_EQ(slower.first, PUSHPULL_FAILED_PRECONDITION);
  EXPECT_THAT(slower.second, HasSubstr("toy/dense/biases has learning_rate_multiplier 1 at the"));
  EXPECT_EQ(start([] {}, [] {}).first, PUSHPULL_OK);
}

// The server has not written the id of its run before it has the variables.
TEST_F(ExternalModelTest, AServerMayBeStartedAgainWhileAProgramLoadsItsData) {
  ExternalServer server(folder_.path());
  server.Start();
  const PushpullCloneOptions options = OptionsOf(server, 0, 1);
  const ClonePtr clone(pushpull_clone_new(&options));
  ASSERT_EQ(pushpull_clone_connect(clone.get()), PUSHPULL_OK) << pushpull_clone_error(clone.get());
  server.Kill();
  server.Start();
  ASSERT_EQ(Start(clone.get()), PUSHPULL_OK) << pushpull_clone_error(clone.get());
  pushpull_clone_stop(clone.get());
  server.Kill();
}

// The clone is freed in the middle of a batch, and the server is killed, now one, now the other.
TEST_F(ExternalModelTest, KilledProgramsAndServersChangeNothing) {
  const std::vector<float> expected = Expected(1);
  ExternalServer server(folder_.path());
  server.Start();
  uint64_t process = 0;
  uint64_t kills = 0;
  bool is_over = false;
  while (!is_over && process < 20) {
    const PushpullCloneOptions options = OptionsOf(server, 0, 1, ++process);
    const ClonePtr clone(pushpull_clone_new(&options));
    ASSERT_EQ(pushpull_clone_connect(clone.get()), PUSHPULL_OK)
        << pushpull_clone_error(clone.get());
    // A restarted program draws initial values that must not count any more.
    if (process > 1) program_.values[0][0] += 1.0f;
    ASSERT_EQ(Start(clone.get()), PUSHPULL_OK) << pushpull_clone_error(clone.get());
    const ComputeFn toy = ToyProgram(layout_, 1);
    for (;;) {
      PushpullBatch batch;
      const int code = pushpull_clone_next(clone.get(), 60000, &batch);
      ASSERT_EQ(code, PUSHPULL_OK) << pushpull_clone_error(clone.get());
      is_over = batch.over != 0;
      if (is_over) break;
      if (batch.position == 3 + 4 * kills) {
        if (++kills % 2 == 0) {
          batch.gradient[layout_.offset(3)] = 7.0f;
          pushpull_clone_advance(clone.get(), layout_.offset(3));
          break;
        }
        server.Kill();
        server.Start();
      }
      toy(clone.get(), batch);
    }
  }
  EXPECT_TRUE(is_over);
  EXPECT_EQ(kills, 5);
  EXPECT_EQ(process, 3);
  server.Join();
  EXPECT_EQ(server.Weights(layout_), expected);
}

}  // namespace
}  // namespace pushpull

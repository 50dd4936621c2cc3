#include "tests/worker/client/grpc/client_testing.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

namespace pushpull {

namespace {

// Takes every call, and never answers.
class SilentHandler final : public PsHandler {
 public:
  PUSHPULL_DECLARE_HANDLER_FUNCTIONS
};

#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof) \
  void SilentHandler::Name(const ps::Request&, Done<ps::Reply>) {}
PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW

absl::Status SilentHandler::PushChunk(const ps::PushChunk&, const Payload&) {
  return absl::OkStatus();
}
CancelFn SilentHandler::FinishPush(const ps::PushChunk&, Done<ps::PushReply>) { return nullptr; }
CancelFn SilentHandler::Pull(const ps::PullRequest&, Done<PullSnapshot>) { return nullptr; }
void SilentHandler::OpenSharedMemory(const ps::OpenSharedMemoryRequest&,
                                     Done<ps::OpenSharedMemoryReply>) {}

}  // namespace

ServedJob::ServedJob(TestServerOptions options) : server_(folder_, options) {
  for (int task = 0; task < options.tasks; ++task) {
    relays_.push_back(std::make_unique<RelayHandler>());
    auto listener = StartGrpcPsServer(absl::StrCat("unix:", folder_.path(), "/task", task),
                                      relays_.back().get());
    CHECK(listener.ok()) << listener.status();
    listeners_.push_back(*std::move(listener));
    absl::StrAppend(&ps_, task == 0 ? "" : ",", listeners_.back()->address());
  }
}

ServedJob::~ServedJob() {
  Kill();
  listeners_.clear();
}

void ServedJob::Start() {
  ASSERT_EQ(server_.Start(), absl::OkStatus());
  for (size_t task = 0; task < relays_.size(); ++task) {
    relays_[task]->Connect(server_.core().handler(static_cast<int>(task)));
  }
}

void ServedJob::Kill() {
  for (const auto& relay : relays_) relay->Disconnect();
  server_.Kill();
}

void ServedJob::StopAnswering() {
  static auto* const silent = new SilentHandler;
  for (const auto& relay : relays_) relay->Connect(silent);
}

absl::Status ServedJob::WaitAndClose() {
  const absl::Status end = server_.WaitForEnd();
  if (!server_.has_given_up()) server_.core().AnnounceEnd(end);
  for (const auto& relay : relays_) relay->Disconnect();
  server_.core().Close();
  server_.Kill();
  return end;
}

PushpullCloneOptions OptionsFor(const char* ps) {
  PushpullCloneOptions options = {};
  options.ps = ps;
  options.num_replicas = 1;
  options.session = 1;
  options.process_number = 1;
  options.peer_deadline_seconds = 60;
  options.shared_memory = 1;
  return options;
}

ProgramVariables::ProgramVariables(const VariableLayout& layout) {
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const VariableSpec& spec = layout.variables()[i];
    PushpullVariable& variable = variables.emplace_back();
    variable.name = spec.name.c_str();
    variable.shape = spec.shape.data();
    variable.rank = static_cast<int32_t>(spec.shape.size());
    variable.moving_statistic = spec.kind == VariableKind::kMovingStatistic ? 1 : 0;
    variable.l2_weight = spec.l2_weight;
    variable.learning_rate_multiplier = spec.learning_rate_multiplier;
    variable.frozen = spec.frozen ? 1 : 0;
    variable.moving_average_decay = spec.moving_average_decay;
    values.emplace_back(layout.num_elements(i), 0.0f);
  }
  for (const std::vector<float>& of_variable : values) value_pointers.push_back(of_variable.data());
}

int ConnectAndStart(PushpullClone* clone, const VariableLayout& layout) {
  if (const int code = pushpull_clone_connect(clone); code != PUSHPULL_OK) return code;
  const ProgramVariables program(layout);
  return pushpull_clone_start(clone, program.variables.data(), layout.num_variables(),
                              program.value_pointers.data(), ToyGradientSource::kNumImages);
}

ComputeFn ToyProgram(const VariableLayout& layout, uint32_t num_replicas) {
  return [&layout, num_replicas](PushpullClone* clone, const PushpullBatch& batch) {
    const size_t size = layout.total_elements();
    const auto result =
        ToyGradientSource(&layout, num_replicas)
            .Compute(batch.position, batch.replica, absl::MakeConstSpan(batch.weights, size),
                     absl::MakeSpan(batch.gradient, size),
                     [clone](int64_t first_final) { pushpull_clone_advance(clone, first_final); });
    std::vector<PushpullMetric> metrics;
    for (const ps::Metric& metric : result->metrics) {
      metrics.push_back({metric.name().c_str(), metric.value()});
    }
    EXPECT_EQ(pushpull_clone_finish(clone, result->samples, result->loss, metrics.data(),
                                    static_cast<int64_t>(metrics.size())),
              PUSHPULL_OK)
        << pushpull_clone_error(clone);
  };
}

int TrainToTheEnd(PushpullClone* clone, const ComputeFn& compute, PushpullBatch* last) {
  // A job that hangs fails after a minute, like the waits of TestServer.
  const Deadline deadline(absl::Minutes(1));
  while (!deadline.HasPassed()) {
    PushpullBatch batch;
    const int code = pushpull_clone_next(clone, 200, &batch);
    if (code == PUSHPULL_DEADLINE_EXCEEDED && batch.over == 0) continue;
    if (code != PUSHPULL_OK) return code;
    if (batch.over != 0) {
      if (last != nullptr) *last = batch;
      return PUSHPULL_OK;
    }
    compute(clone, batch);
  }
  ADD_FAILURE() << "training does not end";
  return PUSHPULL_DEADLINE_EXCEEDED;
}

std::vector<float> TrainedByPrograms(uint32_t n, TestServerOptions server_options,
                                     const std::function<void(PushpullCloneOptions*)>& change) {
  ServedJob job(std::move(server_options));
  job.Start();
  std::vector<std::thread> programs;
  for (uint32_t k = 0; k < n; ++k) {
    programs.emplace_back([&job, &change, n, k] {
      PushpullCloneOptions options = OptionsFor(job.ps().c_str());
      options.worker_id = k;
      options.num_replicas = n;
      if (change) change(&options);
      const ClonePtr clone(pushpull_clone_new(&options));
      EXPECT_EQ(ConnectAndStart(clone.get(), job.layout()), PUSHPULL_OK)
          << pushpull_clone_error(clone.get());
      EXPECT_EQ(TrainToTheEnd(clone.get(), ToyProgram(job.layout(), n)), PUSHPULL_OK)
          << pushpull_clone_error(clone.get());
    });
  }
  const absl::Status end = job.WaitAndClose();
  EXPECT_TRUE(end.ok()) << end;
  for (std::thread& program : programs) program.join();
  return job.server().Checkpointed(job.server().job().limits.num_steps);
}

}  // namespace pushpull

// Tested by tests/worker/client/grpc/pushpull_client_test.cc.
// Tested by tests/worker/client/grpc/client_failures_test.cc.
//
// The C functions around ProgramClone: they check the arguments, convert them, and keep what failed
// for pushpull_clone_error. Nothing that a program passes may end the process.
#include "worker/client/pushpull_client.h"

#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "glog/logging.h"

#include "common/base/monotonic_wait.h"
#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/config/pipeline_config.h"
#include "common/wire/error_detail.h"
#include "common/wire/gradient_codec.h"
#include "worker/client/program_clone.h"

namespace pushpull {
namespace {

constexpr char kForked[] =
    "the clone cannot be used after a fork; use the client in the process that made it, and start "
    "other processes with spawn instead of fork";
constexpr char kTotalLoss[] = "Loss/total_loss";

// The process in which gRPC runs. It does not survive a fork: its threads are missing in the child.
std::atomic<pid_t> grpc_process{0};

absl::Status EnterGrpcProcess() {
  pid_t process = 0;
  if (grpc_process.compare_exchange_strong(process, getpid()) || process == getpid()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("this process was forked from one that has used the client (process ", process,
                   "), and the client cannot be used after a fork; start it with spawn instead"));
}

// A program that uses glog itself has made its own settings.
void InitLogging() {
  static absl::once_flag once;
  absl::call_once(once, [] {
    if (google::IsGoogleLoggingInitialized()) return;
    FLAGS_logtostderr = true;
    FLAGS_minloglevel = std::max(FLAGS_minloglevel, int{google::GLOG_WARNING});
    google::InitGoogleLogging("pushpull_client");
  });
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

// Keeps what is wrong with the options for pushpull_clone_connect.
ProgramCloneOptions Convert(const PushpullCloneOptions& from, absl::Status* problem) {
  ProgramCloneOptions to;
  to.ps = absl::StrSplit(Text(from.ps), ',', absl::SkipWhitespace());
  to.session.worker_id = from.worker_id;
  to.session.num_replicas = from.num_replicas;
  to.session.identity = {from.session, from.process_number};
  to.session.peer_name = Text(from.peer_name);
  to.session.jitter_seed = static_cast<uint64_t>(getpid());
  if (from.peer_deadline_seconds != 0.0) {
    if (from.peer_deadline_seconds > 0.0) {
      to.session.peer_deadline = absl::Seconds(from.peer_deadline_seconds);
    } else {
      *problem = absl::InvalidArgumentError(
          absl::StrCat("peer_deadline_seconds is ", from.peer_deadline_seconds,
                       ", expected more than 0, or 0 for the default"));
    }
  }
  if (const std::string gradients = Text(from.gradient_precision); !gradients.empty()) {
    if (const GradientCodec* const codec = FindGradientCodec(gradients); codec != nullptr) {
      to.gradient_codec = codec;
    } else {
      *problem = absl::InvalidArgumentError(absl::StrCat(
          "gradient_precision=", gradients, ", expected one of ", GradientCodecFlags()));
    }
  }
  if (const std::string weights = Text(from.weight_precision); !weights.empty()) {
    if (const GradientCodec* const codec = FindWeightCodec(weights); codec != nullptr) {
      to.session.weight_codec = codec;
    } else {
      *problem = absl::InvalidArgumentError(
          absl::StrCat("weight_precision=", weights, ", expected one of ", WeightCodecFlags()));
    }
  }
  to.shared_memory = from.shared_memory != 0;
  to.security.insecure = from.insecure != 0;
  TlsFiles files{Text(from.tls_ca), Text(from.tls_cert), Text(from.tls_key)};
  const int given = !files.ca.empty() + !files.cert.empty() + !files.key.empty();
  if (given == 3) to.security.tls = std::move(files);
  if (given == 1 || given == 2) {
    *problem = absl::InvalidArgumentError(
        "TLS needs tls_ca, tls_cert and tls_key; some but not all of them are given");
  } else if (given == 3 && to.security.insecure) {
    *problem = absl::InvalidArgumentError(
        "insecure contradicts tls_ca, tls_cert and tls_key: leave it out");
  }
  return to;
}

absl::StatusOr<VariableSpec> Convert(const PushpullVariable& from) {
  VariableSpec to;
  to.name = Text(from.name);
  if (from.rank < 0 || (from.rank > 0 && from.shape == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat("variable ", to.name, " has no shape"));
  }
  if (from.rank > 0) to.shape.assign(from.shape, from.shape + from.rank);
  if (from.moving_statistic != 0) to.kind = VariableKind::kMovingStatistic;
  to.l2_weight = from.l2_weight;
  to.learning_rate_multiplier = from.learning_rate_multiplier;
  to.frozen = from.frozen != 0;
  to.moving_average_decay = from.moving_average_decay;
  const bool is_finite = std::isfinite(to.l2_weight) && std::isfinite(to.learning_rate_multiplier);
  if (!is_finite || !(to.moving_average_decay >= 0.0f && to.moving_average_decay <= 1.0f)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "variable ", to.name, " has l2_weight ", to.l2_weight, ", learning_rate_multiplier ",
        to.learning_rate_multiplier, " and moving_average_decay ", to.moving_average_decay,
        "; expected finite numbers, and a decay from 0 to 1"));
  }
  return to;
}

absl::StatusOr<GradientResult> ResultOf(uint64_t samples, double loss,
                                        const PushpullMetric* metrics, int64_t num_metrics) {
  if (samples == 0) {
    return absl::InvalidArgumentError(
        "samples is 0, expected the number of samples of the batch; a batch that must not count is "
        "finished with a loss that is not finite");
  }
  if (num_metrics < 0 || (num_metrics > 0 && metrics == nullptr)) {
    return absl::InvalidArgumentError("metrics is null or num_metrics is negative");
  }
  GradientResult result;
  result.samples = samples;
  result.loss = loss;
  const auto add = [&result](const std::string& name, double value) {
    ps::Metric& metric = result.metrics.emplace_back();
    metric.set_name(name);
    metric.set_value(value);
  };
  bool has_loss = false;
  for (int64_t i = 0; i < num_metrics; ++i) {
    const std::string name = Text(metrics[i].name);
    if (name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("metric ", i, " has no name"));
    }
    if (!IsUtf8(name)) {
      return absl::InvalidArgumentError(absl::StrCat("the name of metric ", i, " is not UTF-8"));
    }
    has_loss = has_loss || name == kTotalLoss;
    add(name, metrics[i].value);
  }
  if (!has_loss) add(kTotalLoss, loss);
  return result;
}

}  // namespace
}  // namespace pushpull

struct PushpullClone {
  PushpullClone(pushpull::ProgramCloneOptions options, absl::Status problem)
      : options_problem(std::move(problem)), clone(std::move(options)) {}

  const pid_t process = getpid();
  const absl::Status options_problem;
  pushpull::ProgramClone clone;
  std::string error;
  ps::Arithmetic arithmetic;
  // From the job's config.
  std::optional<std::string> external_name;
  uint64_t batch_size = 0;

  // pushpull_clone_free waits for the calls under way.
  absl::Mutex mutex;
  pushpull::MonotonicCondVar changed;
  int calls ABSL_GUARDED_BY(mutex) = 0;
};

namespace pushpull {
namespace {

bool IsForked(const PushpullClone* clone) { return clone->process != getpid(); }

// A call under way, except in a forked child, where a lock may be held by a thread that is not
// there.
class Call {
 public:
  explicit Call(PushpullClone* clone) : clone_(clone) {
    absl::MutexLock lock(&clone_->mutex);
    ++clone_->calls;
  }
  ~Call() {
    absl::MutexLock lock(&clone_->mutex);
    --clone_->calls;
    clone_->changed.NotifyAll();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // PERMISSION_DENIED is kept for evictions: a clone that has no access, for example because its
  // key file is open to others, must not read as one that an administrator has taken out of the
  // job. An error that may pass is UNAVAILABLE, after which a program knows that a restart may
  // help.
  int Return(const absl::Status& status) {
    if (!status.ok()) clone_->error = std::string(status.message());
    const ps::ErrorDetail::Kind kind = GetErrorDetail(status).kind();
    if (kind == ps::ErrorDetail::JOB_CHANGED) return PUSHPULL_JOB_CHANGED;
    const bool is_evicted = kind == ps::ErrorDetail::EVICTED;
    if (absl::IsPermissionDenied(status) && !is_evicted) return PUSHPULL_FAILED_PRECONDITION;
    if (IsPassing(status)) return PUSHPULL_UNAVAILABLE;
    return static_cast<int>(status.code());
  }

 private:
  PushpullClone* const clone_;
};

// Runs `call`, which returns a status, for a function that returns a code.
template <typename Function>
int Guarded(PushpullClone* clone, const Function& function) {
  if (clone == nullptr) return PUSHPULL_INVALID_ARGUMENT;
  if (IsForked(clone)) return PUSHPULL_FAILED_PRECONDITION;
  Call call(clone);
  return call.Return(function());
}

absl::StatusOr<ProgramGradientSource*> SourceOf(PushpullClone* clone) {
  ProgramGradientSource* const source = clone->clone.source();
  if (source != nullptr) return source;
  return absl::FailedPreconditionError(
      "this clone is not started yet: call pushpull_clone_connect and pushpull_clone_start first");
}

absl::Status Connect(PushpullClone* clone) {
  PP_RETURN_IF_ERROR(clone->options_problem);
  PP_RETURN_IF_ERROR(EnterGrpcProcess());
  PP_RETURN_IF_ERROR(clone->clone.Connect());
  PP_ASSIGN_OR_RETURN(
      const config::TrainEvalPipelineConfig config,
      ParsePipelineConfig(clone->clone.job()->pipeline_config(), "the server's pipeline config"));
  clone->batch_size = config.train_config().batch_size();
  if (config.model().has_external()) clone->external_name = config.model().external().name();
  return absl::OkStatus();
}

absl::Status Start(PushpullClone* clone, const PushpullVariable* variables, int64_t count,
                   const float* const* values, uint64_t num_samples) {
  if (variables == nullptr || count < 1) {
    return absl::InvalidArgumentError("the model has no variables");
  }
  std::vector<VariableSpec> specs;
  for (int64_t i = 0; i < count; ++i) {
    PP_ASSIGN_OR_RETURN(specs.emplace_back(), Convert(variables[i]));
  }
  return clone->clone.Start(std::move(specs), values, num_samples, clone->arithmetic);
}

absl::Status ComputesOn(PushpullClone* clone, const char* device, const char* rounding) {
  if (clone->clone.source() != nullptr) {
    return absl::FailedPreconditionError(
        "this clone was already started: call pushpull_clone_computes_on before "
        "pushpull_clone_start");
  }
  clone->arithmetic.set_device(Text(device));
  clone->arithmetic.set_rounding(Text(rounding));
  return absl::OkStatus();
}

absl::Status Next(PushpullClone* clone, int32_t milliseconds, PushpullBatch* batch) {
  if (batch == nullptr) return absl::InvalidArgumentError("`batch` is null");
  *batch = {};
  PP_ASSIGN_OR_RETURN(ProgramGradientSource* const source, SourceOf(clone));
  const absl::Duration timeout =
      milliseconds < 0 ? absl::InfiniteDuration() : absl::Milliseconds(milliseconds);
  ProgramBatch next;
  const absl::Status status = source->Next(timeout, &next);
  batch->over = next.over ? 1 : 0;
  batch->replica = next.replica;
  batch->position = next.position;
  batch->version = next.version;
  batch->first_sample = static_cast<uint64_t>(next.part.first);
  batch->samples = static_cast<uint64_t>(next.part.samples);
  batch->weights = next.weights.empty() ? nullptr : next.weights.data();
  batch->gradient = next.gradient.empty() ? nullptr : next.gradient.data();
  return status;
}

}  // namespace
}  // namespace pushpull

using pushpull::Call;
using pushpull::Guarded;
using pushpull::IsForked;

PushpullClone* pushpull_clone_new(const PushpullCloneOptions* options) {
  pushpull::InitLogging();
  absl::Status problem;
  if (options == nullptr) {
    return new PushpullClone({}, absl::InvalidArgumentError("the options are null"));
  }
  pushpull::ProgramCloneOptions converted = pushpull::Convert(*options, &problem);
  return new PushpullClone(std::move(converted), std::move(problem));
}

void pushpull_clone_free(PushpullClone* clone) {
  // In a forked child the threads that the destructor waits for do not exist.
  if (clone == nullptr || IsForked(clone)) return;
  clone->clone.Stop();
  {
    absl::MutexLock lock(&clone->mutex);
    const auto idle = [clone]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return clone->calls == 0; };
    clone->changed.Await(&clone->mutex, idle, absl::InfiniteDuration());
  }
  delete clone;
}

const char* pushpull_clone_error(const PushpullClone* clone) {
  if (clone == nullptr) return "the clone is null";
  return IsForked(clone) ? pushpull::kForked : clone->error.c_str();
}

int pushpull_clone_connect(PushpullClone* clone) {
  return Guarded(clone, [clone] { return pushpull::Connect(clone); });
}

void pushpull_clone_job(const PushpullClone* clone, PushpullJob* job) {
  if (job == nullptr) return;
  *job = {};
  if (clone == nullptr) return;
  const ps::JobReply* const reply = clone->clone.job();
  if (reply == nullptr) return;
  job->sync = reply->sync() ? 1 : 0;
  job->tasks = static_cast<int32_t>(reply->tasks());
  job->seed = reply->seed();
  job->batch_size = clone->batch_size;
  job->num_steps = reply->num_steps();
  job->version = reply->version();
  job->awaits_variables = reply->awaits_variables() ? 1 : 0;
  job->external_name = clone->external_name.has_value() ? clone->external_name->c_str() : nullptr;
  job->pipeline_config = reply->pipeline_config().c_str();
}

int pushpull_clone_computes_on(PushpullClone* clone, const char* device, const char* rounding) {
  return Guarded(clone, [&] { return pushpull::ComputesOn(clone, device, rounding); });
}

int pushpull_clone_start(PushpullClone* clone, const PushpullVariable* variables, int64_t count,
                         const float* const* values, uint64_t num_samples) {
  return Guarded(clone,
                 [&] { return pushpull::Start(clone, variables, count, values, num_samples); });
}

int64_t pushpull_clone_total_elements(const PushpullClone* clone) {
  if (clone == nullptr || clone->clone.layout() == nullptr) return -1;
  return clone->clone.layout()->total_elements();
}

int64_t pushpull_clone_offset(const PushpullClone* clone, int64_t index) {
  if (clone == nullptr || clone->clone.layout() == nullptr) return -1;
  const pushpull::VariableLayout& layout = *clone->clone.layout();
  return index >= 0 && index < layout.num_variables() ? layout.offset(index) : -1;
}

int pushpull_clone_next(PushpullClone* clone, int32_t milliseconds, PushpullBatch* batch) {
  return Guarded(clone, [&] { return pushpull::Next(clone, milliseconds, batch); });
}

void pushpull_clone_advance(PushpullClone* clone, int64_t first_final) {
  if (clone == nullptr || IsForked(clone)) return;
  const Call call(clone);
  pushpull::ProgramGradientSource* const source = clone->clone.source();
  if (source != nullptr) source->Advance(first_final);
}

int pushpull_clone_finish(PushpullClone* clone, uint64_t samples, double loss,
                          const PushpullMetric* metrics, int64_t num_metrics) {
  return Guarded(clone, [&]() -> absl::Status {
    PP_ASSIGN_OR_RETURN(pushpull::ProgramGradientSource* const source, pushpull::SourceOf(clone));
    PP_ASSIGN_OR_RETURN(pushpull::GradientResult result,
                        pushpull::ResultOf(samples, loss, metrics, num_metrics));
    return source->Finish(std::move(result));
  });
}

int pushpull_clone_give_up(PushpullClone* clone, const char* message) {
  return Guarded(clone, [&]() -> absl::Status {
    PP_ASSIGN_OR_RETURN(pushpull::ProgramGradientSource* const source, pushpull::SourceOf(clone));
    return source->GiveUp(absl::AbortedError(pushpull::Text(message)));
  });
}

void pushpull_clone_stop(PushpullClone* clone) {
  if (clone == nullptr || IsForked(clone)) return;
  const Call call(clone);
  clone->clone.Stop();
}

void pushpull_clone_progress(PushpullClone* clone, PushpullProgress* progress, char* waiting_for,
                             int64_t waiting_for_size) {
  if (progress != nullptr) *progress = {};
  const bool has_text = waiting_for != nullptr && waiting_for_size > 0;
  if (has_text) waiting_for[0] = '\0';
  if (clone == nullptr || IsForked(clone)) return;
  const Call call(clone);
  const pushpull::CloneReport report = clone->clone.progress();
  if (progress != nullptr) {
    progress->step = report.step;
    progress->num_steps = report.num_steps;
    progress->loss = report.loss;
    progress->learning_rate = report.learning_rate;
    progress->samples_per_second = report.images_per_second;
    progress->samples = report.images;
    progress->staleness = report.staleness;
  }
  if (!has_text) return;
  const size_t size =
      std::min(report.waiting_for.size(), static_cast<size_t>(waiting_for_size) - 1);
  memcpy(waiting_for, report.waiting_for.data(), size);
  waiting_for[size] = '\0';
}

const char* pushpull_gradient_precisions(void) {
  static const auto* const precisions = new std::string(pushpull::GradientCodecFlags());
  return precisions->c_str();
}

const char* pushpull_weight_precisions(void) {
  static const auto* const precisions = new std::string(pushpull::WeightCodecFlags());
  return precisions->c_str();
}

int32_t pushpull_client_version(void) { return PUSHPULL_CLIENT_VERSION; }

// What the functions of pushpull_client.h return when the program, the server or the job fails.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/worker/client/grpc/client_testing.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSteps = 20;

ClonePtr Make(const PushpullCloneOptions& options) {
  return ClonePtr(pushpull_clone_new(&options));
}

std::string ErrorOf(const ClonePtr& clone) { return pushpull_clone_error(clone.get()); }

// A started clone of a job with one clone.
struct StartedClone {
  explicit StartedClone(ServedJob* job, PushpullCloneOptions options) : clone(Make(options)) {
    EXPECT_EQ(ConnectAndStart(clone.get(), job->layout()), PUSHPULL_OK) << ErrorOf(clone);
  }
  explicit StartedClone(ServedJob* job) : StartedClone(job, OptionsFor(job->ps().c_str())) {}

  int Next(int32_t milliseconds = -1) {
    return pushpull_clone_next(clone.get(), milliseconds, &batch);
  }
  int Finish(double loss = 1.0) { return pushpull_clone_finish(clone.get(), 31, loss, nullptr, 0); }

  ClonePtr clone;
  PushpullBatch batch = {};
};

TEST(ClientFailuresTest, RefusesOptions) {
  struct Case {
    const char* words;
    int code;
    std::function<void(PushpullCloneOptions*)> change;
  };
  const std::vector<Case> cases = {
      {"no address", PUSHPULL_INVALID_ARGUMENT, [](auto* o) { o->ps = nullptr; }},
      {"address \"http://127.0.0.1:2222\" of ps task 0: expected host:port",
       PUSHPULL_INVALID_ARGUMENT, [](auto* o) { o->ps = "http://127.0.0.1:2222"; }},
      {"num_replicas is 0", PUSHPULL_INVALID_ARGUMENT, [](auto* o) { o->num_replicas = 0; }},
      {"worker_id is 1", PUSHPULL_INVALID_ARGUMENT, [](auto* o) { o->worker_id = 1; }},
      {"peer_deadline_seconds is -1, expected more than 0", PUSHPULL_INVALID_ARGUMENT,
       [](auto* o) { o->peer_deadline_seconds = -1; }},
      {"peer_deadline_seconds is nan", PUSHPULL_INVALID_ARGUMENT,
       [](auto* o) { o->peer_deadline_seconds = std::numeric_limits<double>::quiet_NaN(); }},
      {"some but not all", PUSHPULL_INVALID_ARGUMENT, [](auto* o) { o->tls_ca = "/ca.pem"; }},
      {"insecure contradicts", PUSHPULL_INVALID_ARGUMENT,
       [](auto* o) {
         o->tls_ca = o->tls_cert = o->tls_key = "/x.pem";
         o->insecure = 1;
       }},
      {"gradient_precision=int4, expected one of fp32, bf16, int8", PUSHPULL_INVALID_ARGUMENT,
       [](auto* o) { o->gradient_precision = "int4"; }},
      {"weight_precision=int8, expected one of fp32, bf16", PUSHPULL_INVALID_ARGUMENT,
       [](auto* o) { o->weight_precision = "int8"; }},
      {"peer_name \"M\\xfcller\" is not UTF-8", PUSHPULL_INVALID_ARGUMENT,
       [](auto* o) { o->peer_name = "M\xfcller"; }},
      {"192.0.2.7:2222 is not of this machine", PUSHPULL_FAILED_PRECONDITION,
       [](auto* o) { o->ps = "192.0.2.7:2222"; }},
      {"/none.pem", -1, [](auto* o) { o->tls_ca = o->tls_cert = o->tls_key = "/none.pem"; }},
  };
  for (const Case& c : cases) {
    PushpullCloneOptions options = OptionsFor("unix:/none");
    c.change(&options);
    const ClonePtr clone = Make(options);
    const int code = pushpull_clone_connect(clone.get());
    EXPECT_NE(code, PUSHPULL_OK);
    EXPECT_TRUE(code == c.code || c.code < 0) << c.words << ": " << code;
    EXPECT_THAT(ErrorOf(clone), HasSubstr(c.words));
  }
  const ClonePtr none(pushpull_clone_new(nullptr));
  EXPECT_EQ(pushpull_clone_connect(none.get()), PUSHPULL_INVALID_ARGUMENT);
  EXPECT_EQ(pushpull_clone_connect(nullptr), PUSHPULL_INVALID_ARGUMENT);
  EXPECT_NE(pushpull_clone_error(nullptr), nullptr);
  pushpull_clone_free(nullptr);
}

// gRPC would end the process or wait for descriptors in silence.
TEST(ClientFailuresTest, RefusesToConnectWithTooFewDescriptors) {
  constexpr int kResourceExhausted = 8;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 16;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const ClonePtr clone = Make(OptionsFor("unix:/none"));
  EXPECT_EQ(pushpull_clone_connect(clone.get()), kResourceExhausted);
  EXPECT_THAT(ErrorOf(clone), HasSubstr("ulimit -n"));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(ClientFailuresTest, AnErrorThatMayPassIsUnavailable) {
  PushpullCloneOptions options = OptionsFor("unix:/none");
  // Address 0 is not mapped, so Linux answers a read at the beginning of this file with EIO, as for
  // a broken disk.
  options.tls_ca = options.tls_cert = options.tls_key = "/proc/self/mem";
  const ClonePtr clone = Make(options);
  EXPECT_EQ(pushpull_clone_connect(clone.get()), PUSHPULL_UNAVAILABLE) << ErrorOf(clone);
  EXPECT_THAT(ErrorOf(clone), HasSubstr("/proc/self/mem"));
}

TEST(ClientFailuresTest, RefusesVariables) {
  ServedJob job;
  job.Start();
  const ClonePtr clone = Make(OptionsFor(job.ps().c_str()));
  ASSERT_EQ(pushpull_clone_connect(clone.get()), PUSHPULL_OK) << ErrorOf(clone);
  const auto start = [&](const std::function<void(ProgramVariables*)>& change) {
    ProgramVariables program(job.layout());
    change(&program);
    return pushpull_clone_start(clone.get(), program.variables.data(),
                                static_cast<int64_t>(program.variables.size()),
                                program.value_pointers.data(), ToyGradientSource::kNumImages);
  };
  EXPECT_EQ(start([](auto* p) { p->variables.clear(); }), PUSHPULL_INVALID_ARGUMENT);
  EXPECT_EQ(start([](auto* p) { p->variables[1].name = nullptr; }), PUSHPULL_INVALID_ARGUMENT);
  EXPECT_THAT(ErrorOf(clone), HasSubstr("variable 1 has no name"));
  EXPECT_EQ(start([](auto* p) { p->variables[1].name = "w\xff"; }), PUSHPULL_INVALID_ARGUMENT);
  EXPECT_THAT(ErrorOf(clone), HasSubstr("the variable's name \"w\\xff\" is not UTF-8"));
  EXPECT_EQ(start([](auto* p) { p->variables[1].name = p->variables[0].name; }),
            PUSHPULL_INVALID_ARGUMENT);
  EXPECT_THAT(ErrorOf(clone), HasSubstr("declared twice"));
  EXPECT_EQ(start([](auto* p) { p->variables[2].shape = nullptr; }), PUSHPULL_INVALID_ARGUMENT);
  EXPECT_EQ(start([](auto* p) { p->variables[2].rank = -1; }), PUSHPULL_INVALID_ARGUMENT);
  const int64_t empty[] = {0, 70};
  EXPECT_EQ(start([&](auto* p) { p->variables[2].shape = empty; }), PUSHPULL_INVALID_ARGUMENT);
  EXPECT_THAT(ErrorOf(clone), HasSubstr("[0, 70]"));
  EXPECT_EQ(start([](auto* p) { p->variables[2].l2_weight = NAN; }), PUSHPULL_INVALID_ARGUMENT);
  EXPECT_EQ(start([](auto* p) { p->variables[2].learning_rate_multiplier = INFINITY; }),
            PUSHPULL_INVALID_ARGUMENT);
  EXPECT_EQ(start([](auto* p) { p->variables[1].moving_average_decay = 1.5f; }),
            PUSHPULL_INVALID_ARGUMENT);
  const int64_t other[] = {50, 71};
  EXPECT_EQ(start([&](auto* p) { p->variables[2].shape = other; }), PUSHPULL_FAILED_PRECONDITION);
  EXPECT_THAT(ErrorOf(clone), HasSubstr("toy/dense/weights is [50, 70] at the server"));
  EXPECT_THAT(ErrorOf(clone), HasSubstr("[50, 71] at the clone"));
}

TEST(ClientFailuresTest, RefusesCallsInTheWrongOrder) {
  ServedJob job;
  job.Start();
  const ClonePtr fresh = Make(OptionsFor(job.ps().c_str()));
  EXPECT_EQ(ConnectAndStart(fresh.get(), job.layout()), PUSHPULL_OK);
  EXPECT_EQ(pushpull_clone_connect(fresh.get()), PUSHPULL_FAILED_PRECONDITION);
  EXPECT_THAT(ErrorOf(fresh), HasSubstr("already connected"));
  const ProgramVariables program(job.layout());
  EXPECT_EQ(pushpull_clone_start(fresh.get(), program.variables.data(), 4, nullptr, 100),
            PUSHPULL_FAILED_PRECONDITION);
  EXPECT_THAT(ErrorOf(fresh), HasSubstr("already started"));
  EXPECT_EQ(pushpull_clone_computes_on(fresh.get(), "", ""), PUSHPULL_FAILED_PRECONDITION);
  EXPECT_THAT(ErrorOf(fresh), HasSubstr("before pushpull_clone_start"));
  EXPECT_EQ(pushpull_clone_finish(fresh.get(), 31, 1.0, nullptr, 0), PUSHPULL_FAILED_PRECONDITION);
  EXPECT_EQ(pushpull_clone_give_up(fresh.get(), "no"), PUSHPULL_FAILED_PRECONDITION);
  EXPECT_EQ(pushpull_clone_next(fresh.get(), 0, nullptr), PUSHPULL_INVALID_ARGUMENT);
  PushpullBatch batch;
  ASSERT_EQ(pushpull_clone_next(fresh.get(), -1, &batch), PUSHPULL_OK);
  EXPECT_EQ(pushpull_clone_next(fresh.get(), 0, &batch), PUSHPULL_FAILED_PRECONDITION);
  EXPECT_THAT(ErrorOf(fresh), HasSubstr("pushpull_clone_finish"));
  EXPECT_EQ(pushpull_clone_finish(fresh.get(), 0, 1.0, nullptr, 0), PUSHPULL_INVALID_ARGUMENT);
  EXPECT_EQ(pushpull_clone_finish(fresh.get(), 31, 1.0, nullptr, 1), PUSHPULL_INVALID_ARGUMENT);
  const PushpullMetric nameless = {nullptr, 1.0};
  EXPECT_EQ(pushpull_clone_finish(fresh.get(), 31, 1.0, &nameless, 1), PUSHPULL_INVALID_ARGUMENT);
  const PushpullMetric foreign = {"M\xfcll", 1.0};
  EXPECT_EQ(pushpull_clone_finish(fresh.get(), 31, 1.0, &foreign, 1), PUSHPULL_INVALID_ARGUMENT);
  EXPECT_THAT(ErrorOf(fresh), HasSubstr("the name of metric 0 is not UTF-8"));
  EXPECT_EQ(pushpull_clone_finish(fresh.get(), 31, 1.0, nullptr, 0), PUSHPULL_OK)
      << "refused calls have not ended the batch";
  EXPECT_EQ(pushpull_clone_finish(fresh.get(), 31, 1.0, nullptr, 0), PUSHPULL_FAILED_PRECONDITION);
}

// The bytes that have been sent must be those of the final gradient, whatever the program announces
// out of place.
TEST(ClientFailuresTest, IgnoresAdvancesOutOfPlace) {
  const std::vector<float> expected = TrainedState(1);
  ServedJob job;
  job.Start();
  StartedClone program(&job);
  const ComputeFn toy = ToyProgram(job.layout(), 1);
  const auto compute = [&](PushpullClone* clone, const PushpullBatch& batch) {
    pushpull_clone_advance(clone, job.layout().total_elements() + 5);
    toy(clone, batch);
    pushpull_clone_advance(clone, 0);  // of no batch
    pushpull_clone_advance(clone, -5);
  };
  pushpull_clone_advance(program.clone.get(), 0);
  std::thread end([&job] { EXPECT_EQ(job.WaitAndClose(), absl::OkStatus()); });
  EXPECT_EQ(TrainToTheEnd(program.clone.get(), compute), PUSHPULL_OK) << ErrorOf(program.clone);
  end.join();
  EXPECT_EQ(job.server().Checkpointed(kSteps), expected);
}

TEST(ClientFailuresTest, WaitsForABatchOnlyAsLongAsTold) {
  ServedJob job;
  job.Start();
  PushpullCloneOptions options = OptionsFor(job.ps().c_str());
  options.num_replicas = 2;
  StartedClone waits(&job, options);
  ASSERT_EQ(waits.Next(), PUSHPULL_OK);
  ASSERT_EQ(waits.Finish(), PUSHPULL_OK);
  EXPECT_EQ(waits.Next(50), PUSHPULL_DEADLINE_EXCEEDED) << "the other clone is missing";
  EXPECT_EQ(waits.batch.over, 0);
  EXPECT_EQ(waits.Next(0), PUSHPULL_DEADLINE_EXCEEDED);
}

TEST(ClientFailuresTest, StopsWhileTheProgramComputes) {
  ServedJob job;
  job.Start();
  StartedClone program(&job);
  ASSERT_EQ(program.Next(), PUSHPULL_OK);
  pushpull_clone_stop(program.clone.get());
  // The memory of the batch stays the program's.
  for (int64_t i = 0; i < job.layout().total_elements(); ++i) {
    program.batch.gradient[i] = program.batch.weights[i];
  }
  pushpull_clone_advance(program.clone.get(), 0);
  EXPECT_EQ(program.Finish(), PUSHPULL_CANCELLED);
  EXPECT_EQ(program.Next(), PUSHPULL_CANCELLED);
  EXPECT_THAT(ErrorOf(program.clone), HasSubstr("told to stop"));
}

TEST(ClientFailuresTest, StopsWhileTheProgramWaits) {
  ServedJob job;
  job.Start();
  PushpullCloneOptions options = OptionsFor(job.ps().c_str());
  options.num_replicas = 2;
  StartedClone program(&job, options);
  ASSERT_EQ(program.Next(), PUSHPULL_OK);
  ASSERT_EQ(program.Finish(), PUSHPULL_OK);
  std::thread stops([&program] {
    absl::SleepFor(absl::Milliseconds(50));
    pushpull_clone_stop(program.clone.get());
  });
  EXPECT_EQ(program.Next(), PUSHPULL_CANCELLED);
  stops.join();
}

TEST(ClientFailuresTest, StopsWhileItConnects) {
  const ClonePtr clone = Make(OptionsFor("unix:/nonexistent/socket"));
  std::thread stops([&clone] {
    absl::SleepFor(absl::Milliseconds(50));
    pushpull_clone_stop(clone.get());
  });
  EXPECT_EQ(pushpull_clone_connect(clone.get()), PUSHPULL_CANCELLED);
  stops.join();
}

// A call that the server does not answer has a timeout of half a minute or a minute.
TEST(ClientFailuresTest, StopsWhileTheServerDoesNotAnswer) {
  constexpr absl::Duration kSoon = absl::Seconds(15);
  ServedJob job;
  job.Start();
  StartedClone program(&job);
  ASSERT_EQ(program.Next(), PUSHPULL_OK);
  job.StopAnswering();
  ASSERT_EQ(program.Finish(), PUSHPULL_OK);
  EXPECT_EQ(program.Next(200), PUSHPULL_DEADLINE_EXCEEDED);
  const absl::Duration freed = job.server().clock().Now();
  program.clone = nullptr;
  EXPECT_LT(job.server().clock().Now() - freed, kSoon);

  const ClonePtr connects = Make(OptionsFor(job.ps().c_str()));
  std::thread stops([&connects] {
    absl::SleepFor(absl::Milliseconds(200));
    pushpull_clone_stop(connects.get());
  });
  const absl::Duration connected = job.server().clock().Now();
  EXPECT_EQ(pushpull_clone_connect(connects.get()), PUSHPULL_CANCELLED) << ErrorOf(connects);
  EXPECT_LT(job.server().clock().Now() - connected, kSoon);
  stops.join();
}

TEST(ClientFailuresTest, IsFreedWhileAnotherThreadIsBlocked) {
  ServedJob job;
  job.Start();
  PushpullCloneOptions options = OptionsFor(job.ps().c_str());
  options.num_replicas = 2;
  auto program = std::make_unique<StartedClone>(&job, options);
  ASSERT_EQ(program->Next(), PUSHPULL_OK);
  ASSERT_EQ(program->Finish(), PUSHPULL_OK);
  int code = PUSHPULL_OK;
  absl::Notification waiting;
  std::thread blocked([&, clone = program->clone.get()] {
    PushpullBatch batch;
    waiting.Notify();
    code = pushpull_clone_next(clone, -1, &batch);
  });
  waiting.WaitForNotification();
  absl::SleepFor(absl::Milliseconds(50));
  program = nullptr;
  blocked.join();
  EXPECT_EQ(code, PUSHPULL_CANCELLED);
}

TEST(ClientFailuresTest, ACloneThatGivesUpIsReplacedWithoutATrace) {
  const std::vector<float> expected = TrainedState(1);
  ServedJob job;
  job.Start();
  const ComputeFn toy = ToyProgram(job.layout(), 1);
  PushpullCloneOptions options = OptionsFor(job.ps().c_str());
  {
    StartedClone gives_up(&job, options);
    const auto compute = [&](PushpullClone* clone, const PushpullBatch& batch) {
      if (batch.position < 7) return toy(clone, batch);
      pushpull_clone_advance(clone, 100);
      EXPECT_EQ(pushpull_clone_give_up(clone, "the GPU has fallen off the bus"), PUSHPULL_OK);
    };
    constexpr int kAborted = 10;
    EXPECT_EQ(TrainToTheEnd(gives_up.clone.get(), compute), kAborted);
    EXPECT_EQ(ErrorOf(gives_up.clone), "the GPU has fallen off the bus");
  }
  {
    // Ends in the middle of a batch, like a killed process.
    options.process_number = 2;
    StartedClone killed(&job, options);
    ASSERT_EQ(killed.Next(), PUSHPULL_OK);
    EXPECT_EQ(killed.batch.position, 7);
    for (int64_t i = 3000; i < job.layout().total_elements(); ++i) killed.batch.gradient[i] = 5.0f;
    pushpull_clone_advance(killed.clone.get(), 3000);
  }
  options.process_number = 3;
  StartedClone returns(&job, options);
  std::thread end([&job] { EXPECT_EQ(job.WaitAndClose(), absl::OkStatus()); });
  EXPECT_EQ(TrainToTheEnd(returns.clone.get(), toy), PUSHPULL_OK) << ErrorOf(returns.clone);
  end.join();
  EXPECT_EQ(job.server().Checkpointed(kSteps), expected);
}

TEST(ClientFailuresTest, AKilledServerThatReturnsChangesNothing) {
  const std::vector<float> expected = TrainedState(1);
  ServedJob job({.mapped = true});
  job.Start();
  StartedClone program(&job);
  const ComputeFn toy = ToyProgram(job.layout(), 1);
  int kills = 0;
  const auto compute = [&](PushpullClone* clone, const PushpullBatch& batch) {
    if (batch.position % 7 == 3 && kills < 2) {
      ++kills;
      job.Kill();
      job.Start();
    }
    toy(clone, batch);
  };
  const auto until_the_end = [&](PushpullClone* clone, const PushpullBatch& batch) {
    compute(clone, batch);
    if (batch.position + 1 < kSteps) return;
    EXPECT_TRUE(job.server().Await([](const ps::StatusReply& s) { return s.version() == kSteps; }));
    EXPECT_EQ(job.WaitAndClose(), absl::OkStatus());
  };
  EXPECT_EQ(TrainToTheEnd(program.clone.get(), until_the_end), PUSHPULL_OK)
      << ErrorOf(program.clone);
  EXPECT_EQ(kills, 2);
  EXPECT_EQ(job.server().Checkpointed(kSteps), expected);
}

TEST(ClientFailuresTest, GivesUpAServerThatIsSilent) {
  ServedJob job;
  job.Start();
  PushpullCloneOptions options = OptionsFor(job.ps().c_str());
  options.peer_deadline_seconds = 0.5;
  StartedClone program(&job, options);
  ASSERT_EQ(program.Next(), PUSHPULL_OK);
  job.Kill();
  EXPECT_EQ(program.Finish(), PUSHPULL_OK) << "finish does not wait for the server";
  EXPECT_EQ(program.Next(), PUSHPULL_DEADLINE_EXCEEDED);
  EXPECT_EQ(program.batch.over, 1) << "calling again is of no use";
  EXPECT_THAT(ErrorOf(program.clone), HasSubstr("did not answer"));
}

// The program neither finishes its batch nor asks for another one while the server ends.
TEST(ClientFailuresTest, IsFreedInTheMiddleOfABatchOfAJobThatHasEnded) {
  ServedJob job;
  job.Start();
  StartedClone program(&job);
  ASSERT_EQ(program.Next(), PUSHPULL_OK);
  job.Kill();
  absl::SleepFor(absl::Milliseconds(50));
  const absl::Duration start = job.server().clock().Now();
  program.clone = nullptr;
  EXPECT_LT(job.server().clock().Now() - start, absl::Seconds(30)) << "the peer deadline is 60 s";
}

TEST(ClientFailuresTest, ALossThatIsNotFiniteIsVoid) {
  ServedJob job({.train_config = "non_finite_policy: SKIP"});
  job.Start();
  StartedClone program(&job);
  const auto compute = [&](PushpullClone* clone, const PushpullBatch& batch) {
    const double loss = batch.position == 3 ? NAN : 1.0;
    EXPECT_EQ(pushpull_clone_finish(clone, 31, loss, nullptr, 0), PUSHPULL_OK);
  };
  uint64_t void_contributions = 0;
  std::thread end([&] {
    EXPECT_EQ(job.server().WaitForEnd(), absl::OkStatus());
    void_contributions = job.server().core().Status().void_contributions();
    EXPECT_EQ(job.WaitAndClose(), absl::OkStatus());
  });
  EXPECT_EQ(TrainToTheEnd(program.clone.get(), compute), PUSHPULL_OK) << ErrorOf(program.clone);
  end.join();
  EXPECT_EQ(void_contributions, 1);
}

TEST(ClientFailuresTest, AFailureThatStopsTheJobIsNamed) {
  ServedJob job;
  job.Start();
  StartedClone program(&job);
  const auto compute = [&](PushpullClone* clone, const PushpullBatch& batch) {
    if (batch.position == 3) batch.gradient[job.layout().offset(2) + 71] = NAN;
    EXPECT_EQ(pushpull_clone_finish(clone, 31, 1.0, nullptr, 0), PUSHPULL_OK);
  };
  std::thread end([&job] { EXPECT_FALSE(job.WaitAndClose().ok()); });
  EXPECT_EQ(TrainToTheEnd(program.clone.get(), compute), PUSHPULL_CANCELLED);
  EXPECT_THAT(ErrorOf(program.clone), HasSubstr("toy/dense/weights[71] is nan"));
  end.join();
}

TEST(ClientFailuresTest, AnEvictedCloneIsTold) {
  ServedJob job;
  job.Start();
  PushpullCloneOptions options = OptionsFor(job.ps().c_str());
  options.num_replicas = 2;
  StartedClone program(&job, options);
  ASSERT_EQ(program.Next(), PUSHPULL_OK);
  ASSERT_EQ(program.Finish(), PUSHPULL_OK);
  ps::EvictRequest evict;
  evict.set_worker_id(0);
  ASSERT_TRUE(job.server().MakeClient(0)->Evict(evict, absl::Seconds(20)).ok());
  EXPECT_EQ(program.Next(), PUSHPULL_PERMISSION_DENIED);
}

// PERMISSION_DENIED of another origin than an administrator: here a newer process of the same
// clone.
TEST(ClientFailuresTest, OtherRefusalsAreNoEvictions) {
  ServedJob job;
  job.Start();
  PushpullCloneOptions options = OptionsFor(job.ps().c_str());
  options.process_number = 2;
  const StartedClone newer(&job, options);
  options.process_number = 1;
  const ClonePtr older = Make(options);
  EXPECT_EQ(ConnectAndStart(older.get(), job.layout()), PUSHPULL_FAILED_PRECONDITION);
  EXPECT_THAT(ErrorOf(older), HasSubstr("is process 1 of this clone"));
}

// In a forked child the clone's threads do not exist, and a lock may be held for ever.
TEST(ClientFailuresTest, AForkedChildIsRefusedAndDoesNotHang) {
  ServedJob job;
  job.Start();
  StartedClone program(&job);
  ASSERT_EQ(program.Next(), PUSHPULL_OK);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    PushpullClone* const clone = program.clone.get();
    PushpullBatch batch;
    PushpullProgress progress;
    char text[10];
    bool good = pushpull_clone_next(clone, -1, &batch) == PUSHPULL_FAILED_PRECONDITION;
    good = good && pushpull_clone_connect(clone) == PUSHPULL_FAILED_PRECONDITION;
    good = good && absl::StrContains(pushpull_clone_error(clone), "after a fork");
    good = good && pushpull_clone_finish(clone, 1, 1.0, nullptr, 0) == PUSHPULL_FAILED_PRECONDITION;
    good = good && pushpull_clone_give_up(clone, "") == PUSHPULL_FAILED_PRECONDITION;
    good = good && pushpull_clone_start(clone, nullptr, 0, nullptr, 0) == 9;
    pushpull_clone_advance(clone, 0);
    pushpull_clone_stop(clone);
    pushpull_clone_progress(clone, &progress, text, sizeof(text));
    pushpull_clone_free(clone);
    const PushpullCloneOptions options = OptionsFor(job.ps().c_str());
    PushpullClone* const other = pushpull_clone_new(&options);
    good = good && pushpull_clone_connect(other) == PUSHPULL_FAILED_PRECONDITION;
    good = good && absl::StrContains(pushpull_clone_error(other), "spawn");
    pushpull_clone_free(other);
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(program.Finish(), PUSHPULL_OK) << "the parent's clone goes on";
  EXPECT_EQ(program.Next(), PUSHPULL_OK);
}

}  // namespace
}  // namespace pushpull

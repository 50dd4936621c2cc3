// Runs the production session and trainer of clones against the production server in one process,
// with seeded faults between them: messages are lost, duplicated, delayed and damaged; servers are
// killed and drained; clones are killed, replaced, and cut off until their leases end. A
// synchronous job must end with the weights of an undisturbed one, bit for bit, and an asynchronous
// job must train each batch once. TestServer's audit compares every gradient with the version in
// its push key.
//
// PUSHPULL_FAULT_SCHEDULES=1000 runs more schedules of each kind. PUSHPULL_FAULT_SEED=n runs only
// schedule n: it has the same faults, but threads meet them at other times.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/base/random.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

constexpr uint64_t kFaultySteps = 20;
constexpr uint64_t kDefaultSchedules = 12;  // of each kind
constexpr int kSchedulesAtOnce = 4;         // schedules mostly wait, so several fit on a core
constexpr absl::Duration kLease = absl::Milliseconds(500);

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// The disturbances of a test over all schedules.
struct Figures {
  std::atomic<int> server_kills{0}, drains{0}, clone_kills{0}, cuts{0}, faulty_messages{0};
};

// The connection between one clone and the servers.
class Line {
 public:
  Line(uint64_t seed, float rate, Figures* figures) : seed_(seed), rate_(rate), figures_(figures) {}

  // Loses every request, or every reply, from now on.
  void Cut(bool requests) { (requests ? requests_lost_ : replies_lost_).store(true); }
  void Mend() {
    requests_lost_.store(false);
    replies_lost_.store(false);
  }
  CallFault Next(const MessageInfo& message) {
    CounterRandom random(seed_, message.sequence * 32 + message.method.size());
    const auto happens = [&](float share) { return random.NextFloat() < rate_ * share; };
    CallFault fault;
    fault.drop_request = happens(1.0f);
    fault.drop_reply = happens(1.0f);
    fault.duplicates = happens(1.0f) ? 1 : 0;
    fault.damage = happens(0.5f);
    if (happens(1.0f)) fault.delay = absl::Milliseconds(random.NextBelow(20));
    if (fault.drop_request || fault.drop_reply || fault.duplicates > 0 || fault.damage) {
      ++figures_->faulty_messages;
    }
    fault.drop_request |= requests_lost_.load();
    fault.drop_reply |= replies_lost_.load();
    return fault;
  }

 private:
  const uint64_t seed_;
  const float rate_;
  Figures* const figures_;
  std::atomic<bool> requests_lost_{false};
  std::atomic<bool> replies_lost_{false};
};

// A clone that can be killed and restarted.
class MortalClone {
 public:
  MortalClone(TestServer* server, uint32_t worker_id, uint32_t num_replicas, uint64_t seed,
              float fault_rate, Figures* figures)
      : server_(server),
        worker_id_(worker_id),
        num_replicas_(num_replicas),
        seed_(seed),
        fault_rate_(fault_rate),
        figures_(figures) {
    Start(/*same_name=*/true);
  }

  // With same_name, the clone restarts as a supervisor restarts it. With another name it has to
  // wait for the old clone's lease.
  void Start(bool same_name) {
    if (!same_name) ++name_;
    line_ = std::make_shared<Line>(seed_ * 1000 + worker_id_ * 100 + ++incarnation_, fault_rate_,
                                   figures_);
    TestCloneOptions options;
    options.worker_id = worker_id_;
    options.num_replicas = num_replicas_;
    options.peer_name = absl::StrCat("host:", name_);
    options.session = name_;
    options.hook = [line = line_](const MessageInfo& message) { return line->Next(message); };
    options.gradient_hook = [](uint64_t, uint32_t, GradientResult*, absl::Span<float>) {
      absl::SleepFor(absl::Milliseconds(2));
    };
    clone_ = std::make_unique<TestClone>(server_, std::move(options));
  }
  // Looks like SIGKILL to the servers: no message of the clone arrives any more.
  void Kill() {
    line_->Cut(/*requests=*/true);
    line_->Cut(/*requests=*/false);
    clone_.reset();
  }
  Line& line() { return *line_; }
  absl::Status Join() { return clone_->Join(); }

 private:
  TestServer* const server_;
  const uint32_t worker_id_;
  const uint32_t num_replicas_;
  const uint64_t seed_;
  const float fault_rate_;
  Figures* const figures_;
  uint64_t name_ = 1;
  uint64_t incarnation_ = 0;
  std::shared_ptr<Line> line_;
  std::unique_ptr<TestClone> clone_;
};

// One job with its disturbances.
class Schedule {
 public:
  Schedule(uint64_t seed, bool sync, Figures* figures)
      : random_(seed, sync ? 1 : 2),
        figures_(figures),
        num_clones_(1 + random_.NextBelow(3)),
        options_(RandomOptions(seed, sync)),
        server_(folder_, options_) {
    const float fault_rate = 0.06f * random_.NextFloat();
    // Spare clones take over replicas in synchronous mode only.
    const uint32_t spares = sync ? random_.NextBelow(2) : 0;
    EXPECT_TRUE(server_.Start().ok());
    for (uint32_t k = 0; k < num_clones_ + spares; ++k) {
      clones_.push_back(
          std::make_unique<MortalClone>(&server_, k, num_clones_, seed, fault_rate, figures));
    }
  }

  void Run() {
    const uint64_t disturbances = 2 + random_.NextBelow(4);
    uint64_t version = 0;
    for (uint64_t i = 0; i < disturbances; ++i) {
      version = std::min(version + random_.NextBelow(6), kFaultySteps);
      AwaitVersion(version);
      absl::SleepFor(absl::Microseconds(random_.NextBelow(6000)));
      Disturb();
    }
    for (const auto& clone : clones_) clone->line().Mend();
    const absl::Status end = server_.WaitForEnd();
    EXPECT_TRUE(end.ok()) << end;
    for (size_t k = 0; k < clones_.size(); ++k) {
      const absl::Status joined = clones_[k]->Join();
      EXPECT_TRUE(joined.ok()) << "clone " << k << ": " << joined;
    }
    EXPECT_TRUE(server_.WaitAndClose().ok());
    EXPECT_GT(server_.audit().compared_chunks(), 0);
  }

  TestServer& server() { return server_; }
  uint32_t num_clones() const { return num_clones_; }
  std::string Describe() const {
    return absl::StrCat(num_clones_, " clones, ", options_.tasks, " tasks, ",
                        options_.mapped ? "mapped" : "anonymous", " state");
  }

 private:
  TestServerOptions RandomOptions(uint64_t seed, bool sync) {
    TestServerOptions options;
    options.train_config = absl::StrCat("save_checkpoints_steps: ", 3 + random_.NextBelow(5));
    options.sync = sync;
    options.tasks = static_cast<int>(1 + seed % 2);
    options.mapped = random_.NextBelow(3) > 0;
    options.lease = kLease;
    return options;
  }

  // Waits for at most a second: after a rollback or without a clone the version may not come.
  void AwaitVersion(uint64_t version) {
    const absl::Duration patience = server_.clock().Now() + absl::Seconds(1);
    server_.Await([&](const ps::StatusReply& status) {
      return status.version() >= version || server_.clock().Now() > patience;
    });
  }

  MortalClone& AnyClone() { return *clones_[random_.NextBelow(clones_.size())]; }

  void Disturb() {
    switch (random_.NextBelow(8)) {
      case 0:
      case 1:
      case 2:
        ++figures_->server_kills;
        server_.Kill();
        absl::SleepFor(absl::Milliseconds(random_.NextBelow(30)));
        return ExpectStarted();
      case 3: {  // rare, because it may wait seconds for a clone that cannot register any more
        ++figures_->drains;
        for (const auto& clone : clones_) clone->line().Mend();
        const absl::Status end = server_.DrainAndClose();
        EXPECT_TRUE(end.ok() || absl::IsCancelled(end)) << end;
        return ExpectStarted();
      }
      case 4:
      case 5: {
        ++figures_->clone_kills;
        MortalClone& clone = AnyClone();
        clone.Kill();
        absl::SleepFor(random_.NextFloat() * 1.5 * kLease);
        return clone.Start(/*same_name=*/random_.NextBelow(4) > 0);
      }
      default: {
        ++figures_->cuts;
        Line& line = AnyClone().line();
        line.Cut(/*requests=*/random_.NextBelow(2) == 0);
        absl::SleepFor(random_.NextFloat() * 2 * kLease);
        if (random_.NextBelow(3) > 0)
          line.Mend();  // otherwise the cut lasts into the next disturbance
      }
    }
  }

  void ExpectStarted() {
    const absl::Status started = server_.Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  CounterRandom random_;
  Figures* const figures_;
  const uint32_t num_clones_;
  TestFolder folder_;
  const TestServerOptions options_;
  TestServer server_;
  std::vector<std::unique_ptr<MortalClone>> clones_;
};

// Runs the schedules 1 to n, several at once, until one fails.
void RunSchedules(const std::function<void(uint64_t seed)>& run) {
  const uint64_t only = FromEnvironment("PUSHPULL_FAULT_SEED", 0);
  if (only > 0) return run(only);
  const uint64_t count = FromEnvironment("PUSHPULL_FAULT_SCHEDULES", kDefaultSchedules);
  std::atomic<uint64_t> next{1};
  std::vector<std::thread> threads;
  for (int i = 0; i < kSchedulesAtOnce; ++i) {
    threads.emplace_back([&] {
      for (uint64_t seed = next++; seed <= count; seed = next++) {
        if (::testing::Test::HasFailure()) return;
        run(seed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Prints the figures. Every kind of fault has to be among the default schedules.
void Check(const Figures& figures) {
  std::printf(
      "%d servers killed, %d drained, %d clones killed, %d cut off, %d messages lost, duplicated "
      "or damaged\n",
      figures.server_kills.load(), figures.drains.load(), figures.clone_kills.load(),
      figures.cuts.load(), figures.faulty_messages.load());
  if (FromEnvironment("PUSHPULL_FAULT_SEED", 0) > 0 ||
      FromEnvironment("PUSHPULL_FAULT_SCHEDULES", kDefaultSchedules) < kDefaultSchedules) {
    return;
  }
  EXPECT_GT(figures.server_kills.load(), 0);
  EXPECT_GT(figures.drains.load(), 0);
  EXPECT_GT(figures.clone_kills.load(), 0);
  EXPECT_GT(figures.cuts.load(), 0);
  EXPECT_GT(figures.faulty_messages.load(), 0);
}

TEST(RandomFaultsTest, SynchronousJobsEndWithTheWeightsOfAnUndisturbedJob) {
  std::map<uint32_t, std::vector<float>> undisturbed;  // by number of clones
  for (const uint32_t clones : {1, 2, 3}) {
    undisturbed[clones] = TrainedState(clones);
    ASSERT_FALSE(undisturbed[clones].empty());
  }
  Figures figures;
  RunSchedules([&](uint64_t seed) {
    Schedule schedule(seed, /*sync=*/true, &figures);
    schedule.Run();
    EXPECT_TRUE(schedule.server().Checkpointed(kFaultySteps) ==
                undisturbed.at(schedule.num_clones()))
        << "PUSHPULL_FAULT_SEED=" << seed << ": " << schedule.Describe();
  });
  Check(figures);
}

// Returns how many batches of all replicas are in the last checkpoint.
uint64_t CountedBatches(TestServer& server) {
  const auto manifest = ReadManifest(server.files(), server.train_dir(), kFaultySteps);
  if (!manifest.ok()) return 0;
  std::string serialized;
  ps::PushMarks marks;
  if (!absl::Base64Unescape(manifest->async_state, &serialized)) return 0;
  if (!marks.ParseFromString(serialized)) return 0;
  uint64_t batches = 0;
  for (const ps::PushMark& mark : marks.marks()) batches += mark.next_position();
  return batches;
}

// Every version consists of one batch, and the batches of a replica are the first ones of its data,
// so each batch counts exactly once if there are as many batches as versions. With one clone the
// order of batches is fixed too, and the weights must equal those of an undisturbed job.
TEST(RandomFaultsTest, AsynchronousJobsTrainEachBatchOnce) {
  const std::vector<float> undisturbed = TrainedState(1, {.sync = false});
  ASSERT_FALSE(undisturbed.empty());
  Figures figures;
  RunSchedules([&](uint64_t seed) {
    Schedule schedule(seed, /*sync=*/false, &figures);
    schedule.Run();
    EXPECT_EQ(CountedBatches(schedule.server()), kFaultySteps)
        << "PUSHPULL_FAULT_SEED=" << seed << ": " << schedule.Describe();
    if (schedule.num_clones() > 1) return;
    EXPECT_TRUE(schedule.server().Checkpointed(kFaultySteps) == undisturbed)
        << "PUSHPULL_FAULT_SEED=" << seed << ": " << schedule.Describe();
  });
  Check(figures);
}

}  // namespace
}  // namespace pushpull

#include "ps_server/monitoring/counting_handler.h"

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/sharding.h"
#include "tests/testkit/fake_clock.h"

namespace pushpull {
namespace {

using absl::StatusCode;

uint64_t Sum(const HistogramValues& values) {
  uint64_t sum = 0;
  for (const uint64_t count : values.counts) sum += count;
  return sum;
}

// Keeps requests until the test answers them.
class HeldHandler final : public PsHandler {
 public:
#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof) \
  void Name(const ps::Request&, Done<ps::Reply> done) override { Answer(std::move(done)); }
  PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW
  absl::Status PushChunk(const ps::PushChunk&, const Payload&) override { return chunk_status; }
  CancelFn FinishPush(const ps::PushChunk&, Done<ps::PushReply> done) override {
    push = std::move(done);
    return [this] { ++cancelled; };
  }
  CancelFn Pull(const ps::PullRequest&, Done<PullSnapshot> done) override {
    pull = std::move(done);
    return [this] { ++cancelled; };
  }
  void OpenSharedMemory(const ps::OpenSharedMemoryRequest&,
                        Done<ps::OpenSharedMemoryReply> done) override {
    done(ps::OpenSharedMemoryReply());
  }

  absl::Status chunk_status;
  ps::PushReply::Outcome outcome = ps::PushReply::ACCEPTED;
  Done<ps::PushReply> push;
  Done<PullSnapshot> pull;
  int cancelled = 0;

 private:
  template <typename Reply>
  void Answer(Done<Reply> done) {
    Reply reply;
    if constexpr (std::is_same_v<Reply, ps::RegisterReply>) {
      return done(absl::UnavailableError("starting"));
    } else if constexpr (std::is_same_v<Reply, ps::CommitReply>) {
      reply.set_outcome(outcome);
    }
    done(std::move(reply));
  }
};

class CountingHandlerTest : public ::testing::Test {
 protected:
  uint64_t Calls(PsMethod method, StatusCode code) { return counters_->calls(method, code); }
  void CommitTo(uint64_t step) {
    ps::CommitRequest request;
    request.mutable_key()->set_step(step);
    handler_.Commit(request, [](const auto&) {});
  }

  FakeClock clock_;
  HeldHandler inner_;
  std::shared_ptr<RequestCounters> counters_ =
      std::make_shared<RequestCounters>([this] { return clock_.Now(); });
  CountingHandler handler_{&inner_, counters_};
};

TEST_F(CountingHandlerTest, ForwardsAndCountsEveryUnaryCall) {
  int answers = 0;
  const auto count = [&answers](const auto&) { ++answers; };
#define PUSHPULL_ROW(Name, ...) handler_.Name({}, count);
  PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW
  handler_.OpenSharedMemory({}, count);
  EXPECT_EQ(answers, kNumPsMethods - 2) << "all but Push and Pull";
  for (int i = 0; i < kNumPsMethods; ++i) {
    const auto method = static_cast<PsMethod>(i);
    const bool streams = method == PsMethod::kPush || method == PsMethod::kPull;
    EXPECT_EQ(Calls(method, StatusCode::kOk), streams || method == PsMethod::kRegister ? 0 : 1)
        << RowOf(method).name;
  }
  EXPECT_EQ(Calls(PsMethod::kRegister, StatusCode::kUnavailable), 1);
}

TEST_F(CountingHandlerTest, CountsBytesCodesAndTimeOfPushes) {
  const std::string bytes(1000, 'g');
  const Payload payload{nullptr, bytes.data(), bytes.size()};
  EXPECT_TRUE(handler_.PushChunk({}, payload).ok());
  EXPECT_TRUE(handler_.PushChunk({}, payload).ok());
  int answers = 0;
  const CancelFn cancel = handler_.FinishPush({}, [&answers](const auto&) { ++answers; });
  cancel();
  EXPECT_EQ(inner_.cancelled, 1) << "the inner handler must see the cancellation";
  EXPECT_EQ(Calls(PsMethod::kPush, StatusCode::kOk), 0) << "the push is not answered yet";
  clock_.Advance(absl::Milliseconds(30));
  inner_.push(ps::PushReply());
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(Calls(PsMethod::kPush, StatusCode::kOk), 1);
  EXPECT_EQ(counters_->pushed_bytes(), 2000);
  EXPECT_DOUBLE_EQ(counters_->push_seconds().sum, 0.03);
  inner_.chunk_status = absl::DataLossError("checksum");
  EXPECT_FALSE(handler_.PushChunk({}, payload).ok());
  EXPECT_EQ(Calls(PsMethod::kPush, StatusCode::kDataLoss), 1);
}

TEST_F(CountingHandlerTest, APullEndsWhenItsBytesAreReleased) {
  const std::string bytes(500, 'v');
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = owner;
  std::optional<PullSnapshot> held;
  handler_.Pull({}, [&held](absl::StatusOr<PullSnapshot> reply) { held = *std::move(reply); });
  clock_.Advance(absl::Milliseconds(200));
  {
    PullSnapshot snapshot;
    snapshot.version = 42;
    snapshot.payload = {std::move(owner), bytes.data(), bytes.size()};
    inner_.pull(std::move(snapshot));
  }
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(held->payload.data, bytes.data());
  EXPECT_EQ(held->version, 42);
  EXPECT_DOUBLE_EQ(counters_->pull_wait_seconds().sum, 0.2);
  EXPECT_EQ(Sum(counters_->pull_seconds()), 0) << "the pull is still running";
  clock_.Advance(absl::Milliseconds(50));
  const PullSnapshot copy = *held;
  held.reset();
  EXPECT_EQ(Sum(counters_->pull_seconds()), 0) << "a copy still holds the bytes";
  EXPECT_FALSE(watched.expired());
  const_cast<PullSnapshot&>(copy).payload.owner = nullptr;
  EXPECT_TRUE(watched.expired()) << "counting must not keep the snapshot pinned";
  EXPECT_DOUBLE_EQ(counters_->pull_seconds().sum, 0.25);
  EXPECT_EQ(counters_->pulled_bytes(), 500);
  EXPECT_EQ(counters_->pulled_version(), 42);
}

TEST_F(CountingHandlerTest, CountsBytesOfPullsAsTheyAreEncoded) {
  const std::vector<float> weights(Sharding::kFirstChunkElements + 100);  // two chunks
  const auto sent = [&](const ps::PullRequest& request) {
    const uint64_t before = counters_->pulled_bytes();
    handler_.Pull(request, [](const auto&) {});
    PullSnapshot snapshot;
    snapshot.payload = {nullptr, reinterpret_cast<const char*>(weights.data()),
                        weights.size() * sizeof(float)};
    inner_.pull(std::move(snapshot));
    return counters_->pulled_bytes() - before;
  };
  ps::PullRequest request;
  EXPECT_EQ(sent(request), weights.size() * 4);
  request.set_encoding(ps::BFLOAT16);
  EXPECT_EQ(sent(request), weights.size() * 2);
  request.add_float32_chunks(1);
  EXPECT_EQ(sent(request), Sharding::kFirstChunkElements * 2 + 100 * 4);
}

TEST_F(CountingHandlerTest, APullMayOutliveTheHandler) {
  auto inner = std::make_unique<HeldHandler>();
  auto handler = std::make_unique<CountingHandler>(inner.get(), counters_);
  std::optional<PullSnapshot> held;
  handler->Pull({}, [&held](absl::StatusOr<PullSnapshot> reply) { held = *std::move(reply); });
  inner->pull(PullSnapshot());
  handler.reset();
  inner.reset();
  held.reset();
  EXPECT_EQ(Sum(counters_->pull_seconds()), 1);
}

TEST_F(CountingHandlerTest, ARoundLastsFromTheFirstToTheLastContribution) {
  CommitTo(5);
  clock_.Advance(absl::Seconds(2));
  CommitTo(5);
  EXPECT_EQ(Sum(counters_->barrier_wait_seconds()), 0) << "another contribution may follow";
  clock_.Advance(absl::Seconds(7));
  inner_.outcome = ps::PushReply::ALREADY_APPLIED;
  CommitTo(5);
  inner_.outcome = ps::PushReply::ACCEPTED;
  CommitTo(6);
  EXPECT_EQ(Sum(counters_->barrier_wait_seconds()), 1);
  EXPECT_DOUBLE_EQ(counters_->barrier_wait_seconds().sum, 2.0)
      << "a late contribution does not extend the wait";
  CommitTo(3);  // the server has rolled back
  EXPECT_EQ(Sum(counters_->barrier_wait_seconds()), 1);
  CommitTo(4);
  EXPECT_EQ(Sum(counters_->barrier_wait_seconds()), 2);
}

TEST_F(CountingHandlerTest, OnlyCommittedPushesAreContributions) {
  ps::PushChunk last;
  ps::PushReply reply;
  const auto push = [&](uint64_t step, ps::Level level) {
    last.mutable_key()->set_step(step);
    handler_.FinishPush(last, [](const auto&) {});
    reply.set_level(level);
    inner_.push(reply);
  };
  push(1, ps::STAGED);
  push(2, ps::STAGED);
  EXPECT_EQ(Sum(counters_->barrier_wait_seconds()), 0);
  push(3, ps::COMMITTED);
  push(4, ps::COMMITTED);
  EXPECT_EQ(Sum(counters_->barrier_wait_seconds()), 1);
}

TEST(LatencyHistogramTest, BucketsIncludeTheirUpperBound) {
  LatencyHistogram histogram;
  histogram.Observe(absl::Milliseconds(1));
  histogram.Observe(absl::Milliseconds(1.5));
  histogram.Observe(absl::Seconds(60));
  histogram.Observe(absl::Seconds(61));
  const HistogramValues values = histogram.Values();
  ASSERT_EQ(values.counts.size(), values.bounds.size() + 1);
  EXPECT_EQ(values.counts[0], 1);
  EXPECT_EQ(values.counts[1], 1);
  EXPECT_EQ(values.counts[14], 1);
  EXPECT_EQ(values.counts[15], 1);
  EXPECT_NEAR(values.sum, 121.0025, 1e-9);
}

}  // namespace
}  // namespace pushpull

#include "worker/client/gradient_pusher.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/clock.h"
#include "kernels/bfloat16.h"
#include "tests/testkit/refusing_ps_client.h"

namespace pushpull {
namespace {

constexpr int64_t kPushedElements = 5 * Sharding::kChunkElements + 100;

struct SentChunk {
  int shard = 0;
  int chunk = 0;
  bool has_commit = false;
  float first = 0.0f;
  ps::GradientEncoding encoding = ps::FLOAT32;
  std::string bytes;
};

// Records what all streams of a test send, in order.
class Recorder {
 public:
  void Add(const SentChunk& chunk) {
    absl::MutexLock lock(&mutex_);
    chunks_.push_back(chunk);
  }
  void AwaitChunks(size_t n) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return chunks_.size() >= n; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(30)));
  }
  std::vector<SentChunk> chunks() {
    absl::MutexLock lock(&mutex_);
    return chunks_;
  }
  void NoteEndOfSending() {
    absl::MutexLock lock(&mutex_);
    ends_.push_back(static_cast<int>(chunks_.size()));
  }
  // Returns how many chunks of all shards had been sent when each stream was ended.
  std::vector<int> ends() {
    absl::MutexLock lock(&mutex_);
    return ends_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<SentChunk> chunks_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> ends_ ABSL_GUARDED_BY(mutex_);
};

class RecordingStream final : public PushStream {
 public:
  RecordingStream(Recorder* recorder, absl::Status send_status, absl::StatusOr<ps::PushReply> reply)
      : recorder_(recorder), send_status_(std::move(send_status)), reply_(std::move(reply)) {}
  absl::Status Send(ps::PushChunk header, const Payload& payload) override {
    recorder_->Add({static_cast<int>(header.shard()), static_cast<int>(header.chunk()),
                    header.has_commit(),
                    payload.size_bytes > 0 ? *reinterpret_cast<const float*>(payload.data) : 0,
                    header.encoding(), std::string(payload.data, payload.size_bytes)});
    return send_status_;
  }
  void EndSending() override { recorder_->NoteEndOfSending(); }
  absl::StatusOr<ps::PushReply> Finish() override { return reply_; }

 private:
  Recorder* const recorder_;
  const absl::Status send_status_;
  const absl::StatusOr<ps::PushReply> reply_;
};

// A client that only supports pushes.
class RecordingClient final : public RefusingPsClient {
 public:
  RecordingClient(Recorder* recorder, int shard) : recorder_(recorder) { reply.set_version(shard); }
  std::unique_ptr<PushStream> StartPush(absl::Duration) override {
    return std::make_unique<RecordingStream>(
        recorder_, send_status,
        error.ok() ? absl::StatusOr<ps::PushReply>(reply) : absl::StatusOr<ps::PushReply>(error));
  }

  ps::PushReply reply;
  absl::Status error;        // returned by Finish
  absl::Status send_status;  // returned by every Send

 private:
  Recorder* const recorder_;
};

struct Fixture {
  SteadyClock clock;
  explicit Fixture(int tasks, ps::GradientEncoding encoding = ps::FLOAT32)
      : sharding(kPushedElements, tasks),
        gradient(new float[kPushedElements](), std::default_delete<float[]>()) {
    std::vector<PsClient*> shards;
    for (int shard = 0; shard < tasks; ++shard) {
      clients.push_back(std::make_unique<RecordingClient>(&recorder, shard));
      shards.push_back(clients.back().get());
    }
    for (int64_t i = 0; i < kPushedElements; ++i) gradient.get()[i] = static_cast<float>(i);
    pusher = std::make_unique<GradientPusher>(
        shards, sharding, &clock,
        GradientPusherOptions{absl::Seconds(10), FindGradientCodec(encoding), nullptr, {}});
  }
  absl::StatusOr<ps::PushReply> Finish() {
    pusher->Commit(ps::CommitInfo());
    return pusher->Await();
  }
  void ExpectWholeGradientFromItsEnd(bool commit_with_chunks) {
    const std::vector<SentChunk> sent = recorder.chunks();
    size_t next = 0;
    for (int shard = sharding.tasks() - 1; shard >= 0; --shard) {
      for (int chunk = sharding.num_chunks(shard) - 1; chunk >= 0; --chunk, ++next) {
        ASSERT_LT(next, sent.size());
        EXPECT_EQ(sent[next].shard, shard);
        EXPECT_EQ(sent[next].chunk, chunk);
        EXPECT_EQ(sent[next].first, static_cast<float>(sharding.chunk(shard, chunk).begin));
        EXPECT_EQ(sent[next].has_commit, commit_with_chunks && chunk == 0);
      }
    }
    EXPECT_EQ(next, sent.size());
  }

  const Sharding sharding;
  const std::shared_ptr<float> gradient;
  Recorder recorder;
  std::vector<std::unique_ptr<RecordingClient>> clients;
  std::unique_ptr<GradientPusher> pusher;
};

// A server gives up a push whose next chunk does not come for a minute, which the next shard may
// need.
TEST(GradientPusherTest, EndsTheStreamOfAShardBeforeItSendsTheNextShard) {
  Fixture f(/*tasks=*/2);
  f.pusher->Start(ps::PushKey(), f.gradient, /*commit_with_chunks=*/false);
  EXPECT_TRUE(f.Finish().ok());
  const int last = f.sharding.num_chunks(1);
  EXPECT_EQ(f.recorder.ends(), (std::vector<int>{last, last + f.sharding.num_chunks(0)}));
}

TEST(GradientPusherTest, SendsFromTheEndWithTheCommitLast) {
  for (const bool commit_with_chunks : {true, false}) {
    for (int tasks : {1, 3}) {
      Fixture fixture(tasks);
      fixture.pusher->Start(ps::PushKey(), fixture.gradient, commit_with_chunks);
      const auto reply = fixture.Finish();
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(reply->version(), 0) << "the reply must be that of shard 0";
      fixture.ExpectWholeGradientFromItsEnd(commit_with_chunks);
    }
  }
}

TEST(GradientPusherTest, SendsOnlyFinalChunks) {
  Fixture fixture(1);
  fixture.pusher->Start(ps::PushKey(), fixture.gradient, true);
  const int last = fixture.sharding.num_chunks(0) - 1;
  fixture.pusher->Advance(fixture.sharding.chunk(0, last - 1).begin + 1);
  fixture.recorder.AwaitChunks(1);
  // The chunk before is incomplete. If it were sent, it would have arrived by the time the next one
  // does.
  fixture.pusher->Advance(fixture.sharding.chunk(0, last - 1).begin);
  fixture.recorder.AwaitChunks(2);
  EXPECT_EQ(fixture.recorder.chunks().size(), 2);
  // All elements are final, but chunk 0 waits because it carries the commit.
  fixture.pusher->Advance(0);
  fixture.recorder.AwaitChunks(last);
  EXPECT_EQ(fixture.recorder.chunks().back().chunk, 1);
  ASSERT_TRUE(fixture.Finish().ok());
  fixture.ExpectWholeGradientFromItsEnd(true);
}

TEST(GradientPusherTest, SendsBfloat16OnRequest) {
  Fixture fixture(2, ps::BFLOAT16);
  for (int round = 0; round < 2;
       ++round) {  // the second round finds the encoded values of the first
    for (int64_t i = 0; i < kPushedElements; ++i) {
      fixture.gradient.get()[i] = static_cast<float>(i + round) / 3.0f;
    }
    fixture.pusher->Start(ps::PushKey(), fixture.gradient, false);
    fixture.pusher->Advance(kPushedElements / 2);
    ASSERT_TRUE(fixture.Finish().ok());
  }
  const std::vector<SentChunk> sent = fixture.recorder.chunks();
  size_t elements = 0;
  for (size_t c = sent.size() / 2; c < sent.size(); ++c) {
    EXPECT_EQ(sent[c].encoding, ps::BFLOAT16);
    const ElementRange range = fixture.sharding.chunk(sent[c].shard, sent[c].chunk);
    ASSERT_EQ(sent[c].bytes.size(), range.size() * sizeof(uint16_t));
    const auto* const halves = reinterpret_cast<const uint16_t*>(sent[c].bytes.data());
    for (int64_t i = 0; i < range.size(); ++i) {
      ASSERT_EQ(halves[i], ToBfloat16(static_cast<float>(range.begin + i + 1) / 3.0f).bits);
    }
    elements += range.size();
  }
  EXPECT_EQ(elements, kPushedElements);
}

// Returns the bytes of the last `chunks` chunks that were sent.
std::vector<std::string> LastBytes(Fixture* fixture, size_t chunks) {
  std::vector<std::string> bytes;
  const std::vector<SentChunk> sent = fixture->recorder.chunks();
  for (size_t c = sent.size() - chunks; c < sent.size(); ++c) bytes.push_back(sent[c].bytes);
  return bytes;
}

TEST(GradientPusherTest, FeedsErrorsBackOnlyFromContributionsThatCount) {
  Fixture fixture(2, ps::INT8_BLOCKS);
  const size_t chunks = fixture.sharding.num_chunks(0) + fixture.sharding.num_chunks(1);
  const auto contribute = [&] {
    for (int64_t i = 0; i < kPushedElements; ++i) {
      fixture.gradient.get()[i] = static_cast<float>(i % 97) / 7.0f;
    }
    fixture.pusher->Start(ps::PushKey(), fixture.gradient, false);
    EXPECT_TRUE(fixture.Finish().ok());
    return LastBytes(&fixture, chunks);
  };
  const std::vector<std::string> first = contribute();
  EXPECT_EQ(fixture.recorder.chunks().back().encoding, ps::INT8_BLOCKS);
  EXPECT_EQ(first.back().size(), Int8Codec().EncodedBytes(fixture.sharding.chunk(0, 0).size()));
  // Sent again, refused, void, or decided without it: nothing was lost, so the bytes are the same.
  EXPECT_TRUE(fixture.pusher->Repeat(ps::CommitInfo()).ok());
  EXPECT_EQ(LastBytes(&fixture, chunks), first);
  EXPECT_EQ(contribute(), first);
  fixture.pusher->NoteOutcome(ps::PushReply::ALREADY_APPLIED, /*repeated=*/false);
  EXPECT_EQ(contribute(), first);
  fixture.pusher->NoteOutcome(ps::PushReply::VOID, /*repeated=*/false);
  EXPECT_EQ(contribute(), first);
  fixture.pusher->Start(ps::PushKey(), fixture.gradient, false);
  fixture.pusher->Advance(0);
  fixture.pusher->Abandon();
  EXPECT_EQ(contribute(), first);
  fixture.pusher->NoteOutcome(ps::PushReply::ACCEPTED, /*repeated=*/false);
  const std::vector<std::string> second = contribute();
  EXPECT_NE(second, first);
  // The answer to the first attempt was lost, but the attempt counts.
  EXPECT_FALSE(fixture.pusher->was_repeated());
  EXPECT_TRUE(fixture.pusher->Repeat(ps::CommitInfo()).ok());
  EXPECT_TRUE(fixture.pusher->was_repeated());
  EXPECT_EQ(LastBytes(&fixture, chunks), second);
  fixture.pusher->NoteOutcome(ps::PushReply::ALREADY_APPLIED, /*repeated=*/true);
  EXPECT_NE(contribute(), second);
}

TEST(GradientPusherTest, AbandonStopsAPushMidway) {
  Fixture fixture(2);
  fixture.pusher->Start(ps::PushKey(), fixture.gradient, false);
  fixture.pusher->Advance(fixture.sharding.chunk(1, 0).begin);
  fixture.recorder.AwaitChunks(1);
  fixture.pusher->Abandon();
  const size_t sent = fixture.recorder.chunks().size();
  EXPECT_LE(static_cast<int>(sent), fixture.sharding.num_chunks(1));
  // The contribution after an abandoned one is complete.
  Fixture fresh(2);
  fresh.pusher->Start(ps::PushKey(), fresh.gradient, false);
  fresh.pusher->Abandon();
  EXPECT_TRUE(fresh.recorder.chunks().empty());
  fresh.pusher->Start(ps::PushKey(), fresh.gradient, false);
  ASSERT_TRUE(fresh.Finish().ok());
  fresh.ExpectWholeGradientFromItsEnd(false);
}

TEST(GradientPusherTest, ReturnsErrorsAndMissingChunks) {
  Fixture fixture(2);
  fixture.clients[1]->error = absl::AbortedError("another epoch");
  fixture.clients[1]->send_status = absl::UnavailableError("broken");
  fixture.pusher->Start(ps::PushKey(), fixture.gradient, false);
  EXPECT_TRUE(absl::IsAborted(fixture.Finish().status()))
      << "Finish returns the reason, Send does not know it";
  fixture.clients[1]->error = absl::OkStatus();
  fixture.clients[1]->send_status = absl::OkStatus();
  fixture.clients[1]->reply.set_outcome(ps::PushReply::INCOMPLETE);
  EXPECT_EQ(fixture.pusher->failed_shard(), 1);
  EXPECT_TRUE(absl::IsUnavailable(fixture.pusher->Repeat(ps::CommitInfo()).status()));
  EXPECT_EQ(fixture.pusher->failed_shard(), 1);
  fixture.clients[1]->reply.set_outcome(ps::PushReply::ACCEPTED);
  EXPECT_TRUE(fixture.pusher->Repeat(ps::CommitInfo()).ok());
}

}  // namespace
}  // namespace pushpull

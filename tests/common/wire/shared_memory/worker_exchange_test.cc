#include "common/wire/shared_memory/worker_exchange.h"

#include <string>

#include "gtest/gtest.h"

#include "common/model/sharding.h"

namespace pushpull {
namespace {

// A worker whose server gives the answers that the test sets.
class WorkerExchangeTest : public testing::Test {
 protected:
  std::shared_ptr<ChunkExchange> Pull(uint64_t epoch, uint64_t grant) {
    ps::PullRequest pull;
    pull.set_run_id("run");
    pull.set_epoch(epoch);
    pull.set_worker_id(7);
    pull.mutable_grant()->set_replica(2);
    pull.mutable_grant()->set_grant(grant);
    pull.mutable_grant()->set_mac(99);
    return Pull(&worker_, pull);
  }
  std::shared_ptr<ChunkExchange> Pull(WorkerExchange* worker, const ps::PullRequest& pull) {
    return worker->ForPull(pull,
                           [this](const ps::OpenSharedMemoryRequest& request)
                               -> absl::StatusOr<ps::OpenSharedMemoryReply> {
                             ++asked_;
                             request_ = request;
                             if (!answer_.ok()) return answer_;
                             auto server = ChunkExchange::Create(Sharding::kChunkBytes);
                             if (!server.ok()) return server.status();
                             server_ = *std::move(server);
                             ps::OpenSharedMemoryReply reply;
                             server_->Describe(&reply);
                             return reply;
                           });
  }

  WorkerExchange worker_{"the task", /*wanted=*/true};
  absl::Status answer_;
  int asked_ = 0;
  ps::OpenSharedMemoryRequest request_;
  std::shared_ptr<ChunkExchange> server_;
};

TEST_F(WorkerExchangeTest, SendsTheEpochAndGrantOfThePull) {
  EXPECT_EQ(worker_.current(), nullptr);
  const auto exchange = Pull(3, 5);
  ASSERT_NE(exchange, nullptr);
  EXPECT_EQ(exchange->token(), server_->token());
  EXPECT_EQ(worker_.current(), exchange);
  EXPECT_EQ(request_.run_id(), "run");
  EXPECT_EQ(request_.epoch(), 3);
  EXPECT_EQ(request_.worker_id(), 7);
  EXPECT_EQ(request_.grant().replica(), 2);
  EXPECT_EQ(request_.grant().grant(), 5);
  EXPECT_EQ(request_.grant().mac(), 99);
  EXPECT_EQ(request_.host(), HostIdentity());
}

TEST_F(WorkerExchangeTest, AsksOncePerEpoch) {
  const auto first = Pull(3, 5);
  EXPECT_EQ(Pull(3, 5), first);
  EXPECT_EQ(Pull(3, 6), first) << "a new grant is no reason for new memory";
  EXPECT_EQ(asked_, 1);
  const auto second = Pull(4, 6);
  EXPECT_EQ(asked_, 2);
  EXPECT_NE(second, first);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(worker_.current(), second);
}

TEST_F(WorkerExchangeTest, ARefusalHoldsForItsEpochAndGrant) {
  answer_ = absl::FailedPreconditionError("another machine");
  EXPECT_EQ(Pull(3, 5), nullptr);
  answer_ = absl::OkStatus();
  EXPECT_EQ(Pull(3, 5), nullptr);
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(worker_.current(), nullptr);
  EXPECT_NE(Pull(3, 6), nullptr) << "another grant allows a new request";
  EXPECT_EQ(asked_, 2);
}

TEST_F(WorkerExchangeTest, AsksAgainInANewEpoch) {
  answer_ = absl::UnimplementedError("an older server");
  EXPECT_EQ(Pull(3, 5), nullptr);
  answer_ = absl::OkStatus();
  EXPECT_NE(Pull(4, 5), nullptr);
}

TEST_F(WorkerExchangeTest, ARefusalInANewEpochEndsTheOldExchange) {
  ASSERT_NE(Pull(3, 5), nullptr);
  answer_ = absl::FailedPreconditionError("no");
  EXPECT_EQ(Pull(4, 5), nullptr);
  EXPECT_EQ(worker_.current(), nullptr);
}

TEST_F(WorkerExchangeTest, AsksAnUnavailableServerAgain) {
  answer_ = absl::UnavailableError("starting");
  EXPECT_EQ(Pull(3, 5), nullptr);
  EXPECT_EQ(Pull(3, 5), nullptr);
  EXPECT_EQ(asked_, 2);
  answer_ = absl::OkStatus();
  EXPECT_NE(Pull(3, 5), nullptr);
  EXPECT_EQ(asked_, 3);
}

TEST_F(WorkerExchangeTest, TreatsMemoryThatCannotBeAttachedAsARefusal) {
  int asked = 0;
  ps::PullRequest pull;
  pull.mutable_grant()->set_grant(1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(worker_.ForPull(pull,
                              [&](const ps::OpenSharedMemoryRequest&) {
                                ++asked;
                                return absl::StatusOr<ps::OpenSharedMemoryReply>(
                                    ps::OpenSharedMemoryReply());
                              }),
              nullptr);
  }
  EXPECT_EQ(asked, 1);
}

TEST_F(WorkerExchangeTest, DoesNotAskWithoutAGrantOrIfDisabled) {
  ps::PullRequest pull;
  EXPECT_EQ(Pull(&worker_, pull), nullptr);
  pull.mutable_grant()->set_grant(1);
  WorkerExchange unwanted("the task", /*wanted=*/false);
  EXPECT_EQ(Pull(&unwanted, pull), nullptr);
  EXPECT_EQ(unwanted.current(), nullptr);
  EXPECT_EQ(asked_, 0);
}

TEST_F(WorkerExchangeTest, ADroppedExchangeIsNotUsedAgainInItsEpoch) {
  const auto exchange = Pull(3, 5);
  ASSERT_NE(exchange, nullptr);
  worker_.Drop(exchange->token() + 1);  // the token of an earlier exchange
  EXPECT_EQ(worker_.current(), exchange);
  worker_.Drop(exchange->token());
  EXPECT_EQ(worker_.current(), nullptr);
  EXPECT_EQ(Pull(3, 5), nullptr);
  EXPECT_EQ(asked_, 1);
  EXPECT_NE(Pull(4, 5), nullptr);
}

}  // namespace
}  // namespace pushpull

// Client requests to a whole server core.
#include "ps_server/runtime/task_handler.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"
#include "ps_server/runtime/server.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/pulled_bytes.h"

namespace pushpull {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);

class TaskHandlerTest : public ::testing::Test {
 protected:
  void StartServer(int tasks, bool mapped = false) {
    TestServerOptions options;
    options.train_config = "num_steps: 1000000";
    options.tasks = tasks;
    options.mapped = mapped;
    server_ = std::make_unique<TestServer>(folder_, options);
    ASSERT_TRUE(server_->Start().ok());
    client_ = server_->MakeClient(0);
    ASSERT_TRUE(server_->Await([](const auto& status) { return status.epoch() > 0; }));
    const auto job = client_->GetJob(ps::JobRequest(), kTimeout);
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *job;
    ASSERT_TRUE(server_->Await([this](const auto&) {
      return client_->Pull(PullOf(0), kTimeout, PulledBytes().sink()).ok();
    })) << "the server did not recover";
  }
  // The shard begins to serve a moment before the coordinator does.
  absl::StatusOr<ps::RegisterReply> Register(const ps::RegisterRequest& request) {
    absl::StatusOr<ps::RegisterReply> reply;
    EXPECT_TRUE(server_->Await([&](const auto&) {
      reply = client_->Register(request, kTimeout);
      return !absl::IsUnavailable(reply.status());
    }));
    return reply;
  }
  absl::StatusOr<ps::RegisterReply> RegisterTheOnlyClone() {
    ps::RegisterRequest request;
    request.set_run_id(job_.run_id());
    request.set_num_replicas(1);
    request.set_layout_signature(job_.layout_signature());
    request.set_protocol_version(kProtocolVersion);
    request.set_session(77);
    return Register(request);
  }
  ps::PullRequest PullOf(uint64_t version) const {
    ps::PullRequest request;
    request.set_run_id(job_.run_id());
    request.set_epoch(job_.epoch());
    request.set_min_version(version);
    return request;
  }

  TestFolder folder_;
  std::unique_ptr<TestServer> server_;
  std::unique_ptr<PsClient> client_;
  ps::JobReply job_;
};

TEST_F(TaskHandlerTest, ReturnsTheJob) {
  StartServer(2);
  EXPECT_EQ(job_.protocol_version(), kProtocolVersion);
  EXPECT_EQ(job_.run_id().size(), 16);
  EXPECT_EQ(job_.num_steps(), 1000000);
  EXPECT_EQ(job_.tasks(), 2);
  EXPECT_EQ(job_.addresses_size(), 2);
  EXPECT_EQ(job_.layout_signature(), server_->job().layout.signature());
  EXPECT_EQ(job_.pipeline_config(), server_->job().config_text);
  const auto status = client_->GetStatus({}, kTimeout);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->run_id(), job_.run_id());
  EXPECT_EQ(job_.num_replicas(), 0u) << "no clone has said it yet";
  ASSERT_TRUE(RegisterTheOnlyClone().ok());
  EXPECT_EQ(client_->GetJob({}, kTimeout)->num_replicas(), 1u);
}

TEST_F(TaskHandlerTest, OtherTasksRefuseCoordinatorCalls) {
  StartServer(2);
  const auto other = server_->MakeClient(1);
  const absl::Status status = other->GetJob(ps::JobRequest(), kTimeout).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "task 0")) << status;
  // These tasks end with the coordinator's process and not on request.
  ps::EndTaskRequest end;
  end.set_run_id(job_.run_id());
  end.set_epoch(job_.epoch() + 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(other->EndTask(end, kTimeout).status()));
}

TEST_F(TaskHandlerTest, AKnownModelIsNotDeclared) {
  StartServer(1);
  ps::DeclareRequest request;
  request.set_run_id(job_.run_id());
  absl::Status status = client_->DeclareVariables(request, kTimeout).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "model.external")) << status;
  request.set_run_id(std::string(16, 'x'));
  status = client_->DeclareVariables(request, kTimeout).status();
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::WRONG_RUN);
}

TEST_F(TaskHandlerTest, APullOfAMissingVersionEndsAfterItsWait) {
  StartServer(1);
  ps::PullRequest request = PullOf(5);
  request.set_wait_milliseconds(50);
  const absl::Status status = client_->Pull(request, kTimeout, PulledBytes().sink());
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "shard 0 has not reached the version"))
      << "the error must come from the server, not from the client's timeout: " << status;
}

TEST_F(TaskHandlerTest, RefusesAPullOfAnotherRunOrEpoch) {
  StartServer(1);
  ps::PullRequest request = PullOf(0);
  ASSERT_TRUE(client_->Pull(request, kTimeout, PulledBytes().sink()).ok());
  request.set_run_id(std::string(16, 'x'));
  EXPECT_EQ(GetErrorDetail(client_->Pull(request, kTimeout, PulledBytes().sink())).kind(),
            ps::ErrorDetail::WRONG_RUN);
  request = PullOf(0);
  server_->Kill();
  ASSERT_TRUE(server_->Start().ok());
  ASSERT_TRUE(server_->Await([this](const auto& status) { return status.epoch() > job_.epoch(); }));
  const ps::ErrorDetail detail =
      GetErrorDetail(client_->Pull(request, kTimeout, PulledBytes().sink()));
  EXPECT_EQ(detail.kind(), ps::ErrorDetail::EPOCH_CHANGED);
  EXPECT_GT(detail.epoch(), job_.epoch());
}

TEST_F(TaskHandlerTest, OnlyTheOwnerOfAGrantMayPushAndCommit) {
  StartServer(1);
  const auto registered = RegisterTheOnlyClone();
  ASSERT_TRUE(registered.ok()) << registered.status();
  ASSERT_EQ(registered->grants_size(), 1);
  const ps::ReplicaGrant& grant = registered->grants(0);

  ps::PushChunk chunk;
  ps::PushKey& key = *chunk.mutable_key();
  key.set_run_id(job_.run_id());
  key.set_epoch(job_.epoch());
  key.set_step(1);
  key.set_replica(grant.replica());
  key.set_grant(grant.grant());
  const auto push = [&] { return server_->core().handler(0)->PushChunk(chunk, Payload()); };
  const auto commit = [&] {
    ps::CommitRequest request;
    *request.mutable_key() = key;
    request.mutable_info()->set_samples(1);
    return client_->Commit(request, kTimeout).status();
  };
  for (const uint64_t guess : {uint64_t{0}, grant.mac() + 1}) {
    key.set_mac(guess);
    EXPECT_EQ(GetErrorDetail(push()).kind(), ps::ErrorDetail::FENCED);
    EXPECT_EQ(GetErrorDetail(commit()).kind(), ps::ErrorDetail::FENCED);
  }
  key.set_mac(grant.mac());
  key.set_grant(grant.grant() + 1);
  EXPECT_EQ(GetErrorDetail(push()).kind(), ps::ErrorDetail::FENCED)
      << "a grant that the clone made up";
  key.set_grant(grant.grant());
  key.set_worker_id(1);
  EXPECT_EQ(GetErrorDetail(push()).kind(), ps::ErrorDetail::FENCED)
      << "the grant of another worker";
  key.set_worker_id(0);
  EXPECT_EQ(GetErrorDetail(push()).kind(), ps::ErrorDetail::BAD_CHUNK) << "the chunk is empty";
  EXPECT_TRUE(commit().ok());
}

TEST_F(TaskHandlerTest, OnlyTheOwnerOfAGrantMayOpenSharedMemory) {
  StartServer(2);
  const auto registered = RegisterTheOnlyClone();
  ASSERT_TRUE(registered.ok()) << registered.status();
  ASSERT_EQ(registered->grants_size(), 1);

  ps::OpenSharedMemoryRequest right;
  right.set_run_id(job_.run_id());
  right.set_epoch(job_.epoch());
  *right.mutable_grant() = registered->grants(0);
  const auto open = [this](int task, const ps::OpenSharedMemoryRequest& request) {
    absl::StatusOr<ps::OpenSharedMemoryReply> reply;
    server_->core().handler(task)->OpenSharedMemory(
        request, [&reply](auto answer) { reply = std::move(answer); });
    return reply;
  };
  const auto refusal = [&](const ps::OpenSharedMemoryRequest& request) {
    return GetErrorDetail(open(0, request).status()).kind();
  };
  for (int task = 0; task < 2; ++task) {
    const auto reply = open(task, right);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->shard_bytes(), server_->job().sharding.shard(task).size() * sizeof(float));
    EXPECT_GT(reply->shard_bytes(), 0);
  }
  ps::OpenSharedMemoryRequest request = right;
  request.set_run_id(std::string(16, 'x'));
  EXPECT_EQ(refusal(request), ps::ErrorDetail::WRONG_RUN);
  request = right;
  request.set_epoch(job_.epoch() - 1);
  EXPECT_EQ(refusal(request), ps::ErrorDetail::EPOCH_CHANGED);
  for (const uint64_t guess : {uint64_t{0}, right.grant().mac() + 1}) {
    request = right;
    request.mutable_grant()->set_mac(guess);
    EXPECT_EQ(refusal(request), ps::ErrorDetail::FENCED);
  }
  request = right;
  request.set_worker_id(1);
  EXPECT_EQ(refusal(request), ps::ErrorDetail::FENCED) << "the grant of another worker";
  request = right;
  request.mutable_grant()->set_replica(right.grant().replica() + 1);
  EXPECT_EQ(refusal(request), ps::ErrorDetail::FENCED) << "the grant of another replica";
  request = right;
  request.clear_grant();
  EXPECT_EQ(refusal(request), ps::ErrorDetail::FENCED) << "no grant";
}

TEST_F(TaskHandlerTest, RefusesAnotherSessionOfAClone) {
  StartServer(1);
  ps::RegisterRequest request;
  request.set_run_id(job_.run_id());
  request.set_num_replicas(1);
  request.set_layout_signature(job_.layout_signature());
  request.set_protocol_version(kProtocolVersion);
  request.set_peer_name("host:1");
  request.set_session(77);
  ASSERT_TRUE(Register(request).ok());
  ASSERT_TRUE(Register(request).ok());
  request.set_session(78);
  EXPECT_TRUE(absl::IsAlreadyExists(Register(request).status()));

  ps::HeartbeatRequest heartbeat;
  heartbeat.set_run_id(job_.run_id());
  heartbeat.set_epoch(job_.epoch());
  EXPECT_EQ(GetErrorDetail(client_->Heartbeat(heartbeat, kTimeout).status()).kind(),
            ps::ErrorDetail::EPOCH_CHANGED);
  heartbeat.set_session(77);
  const auto reply = client_->Heartbeat(heartbeat, kTimeout);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->grants_size(), 1);
}

TEST_F(TaskHandlerTest, ShardsRefuseOrdersFromTheNetwork) {
  StartServer(1);
  ps::RestoreRequest restore;
  restore.set_run_id(job_.run_id());
  restore.set_epoch(job_.epoch() + 1);
  ps::ApplyRequest apply;
  apply.set_run_id(job_.run_id());
  apply.set_epoch(job_.epoch());
  apply.set_step(1);
  ps::SnapshotRequest snapshot;
  snapshot.set_run_id(job_.run_id());
  EXPECT_TRUE(absl::IsPermissionDenied(client_->Restore(restore, kTimeout).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(client_->Apply(apply, kTimeout).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(client_->MeasureNorm(apply, kTimeout).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(client_->Snapshot(snapshot, kTimeout).status()));
  EXPECT_TRUE(client_->GetShardState({}, kTimeout).ok());
}

TEST_F(TaskHandlerTest, ReadersWithoutAGrantDoNotPinVersions) {
  StartServer(1);
  std::vector<PullSnapshot> held;
  const auto pull = [&](uint64_t version) {
    const auto answer = std::make_shared<std::promise<absl::StatusOr<PullSnapshot>>>();
    std::future<absl::StatusOr<PullSnapshot>> answered = answer->get_future();
    server_->core().handler(0)->Pull(PullOf(version), [answer](auto s) { answer->set_value(s); });
    if (answered.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      return absl::DeadlineExceededError("the pull is not answered");
    }
    absl::StatusOr<PullSnapshot> snapshot = answered.get();
    if (snapshot.ok()) held.push_back(*snapshot);
    return snapshot.status();
  };
  TestClone clone(server_.get(), {});
  for (uint64_t version = 0; held.size() < 2; version += 2) {
    ASSERT_TRUE(
        server_->Await([version](const auto& status) { return status.version() >= version; }));
    ASSERT_TRUE(pull(version).ok());
    if (held.size() == 2 && held[0].version == held[1].version) held.pop_back();
  }
  const uint64_t newest = held.back().version;
  EXPECT_TRUE(
      server_->Await([newest](const auto& status) { return status.version() >= newest + 10; }));
  EXPECT_TRUE(absl::IsUnavailable(pull(newest + 1))) << "two copies are already in use";
  held.clear();
  EXPECT_TRUE(pull(newest + 1).ok());
  clone.Stop();
  clone.Join().IgnoreError();
}

TEST_F(TaskHandlerTest, ReadersWithoutAGrantDoNotBlockTheStoresThread) {
  StartServer(1);
  // The store's thread, which makes the versions, also answers the pulls that wait for them.
  const auto thread_of_answer = [&](const ps::PullRequest& request) {
    const auto answer = std::make_shared<std::promise<std::thread::id>>();
    server_->core().handler(0)->Pull(request, [answer](const absl::StatusOr<PullSnapshot>& s) {
      EXPECT_TRUE(s.ok()) << s.status();
      answer->set_value(std::this_thread::get_id());
    });
    return answer->get_future();
  };
  const auto registered = RegisterTheOnlyClone();
  ASSERT_TRUE(registered.ok()) << registered.status();
  ps::PullRequest with_grant = PullOf(1);
  *with_grant.mutable_grant() = registered->grants(0);
  std::future<std::thread::id> owner = thread_of_answer(with_grant);
  std::future<std::thread::id> reader = thread_of_answer(PullOf(1));
  TestCloneOptions options;
  options.session = 77;
  TestClone clone(server_.get(), options);
  ASSERT_EQ(owner.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  ASSERT_EQ(reader.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_NE(owner.get(), reader.get());
  clone.Stop();
  clone.Join().IgnoreError();
}

TEST_F(TaskHandlerTest, FewReadersWithoutAGrantWaitAtATime) {
  StartServer(1);
  for (int i = 0; i < 40; ++i) {
    const absl::Status status = client_->Pull(PullOf(0), kTimeout, PulledBytes().sink());
    ASSERT_TRUE(status.ok()) << "one after another, there may be any number: " << status;
  }
  absl::Notification copied;
  absl::Notification go_on;
  std::atomic<int> served = 0;
  std::atomic<int> refused = 0;
  server_->core().handler(0)->Pull(PullOf(0), [&](const absl::StatusOr<PullSnapshot>&) {
    copied.Notify();
    go_on.WaitForNotification();  // keeps the thread that makes the copies busy
  });
  copied.WaitForNotification();
  for (int i = 0; i < 20; ++i) {
    server_->core().handler(0)->Pull(PullOf(0), [&](const absl::StatusOr<PullSnapshot>& snapshot) {
      EXPECT_TRUE(snapshot.ok() || absl::IsUnavailable(snapshot.status())) << snapshot.status();
      ++(snapshot.ok() ? served : refused);
    });
  }
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(served, 0);
  go_on.Notify();
  EXPECT_TRUE(server_->Await([&served](const auto&) { return served == 16; })) << served;
}

TEST_F(TaskHandlerTest, RefusesTextsThatWouldForgeALogLine) {
  StartServer(1);
  const std::string forged = "a\nERROR all is lost";
  ps::RegisterRequest announced;
  announced.set_peer_name(forged);
  ps::HeartbeatRequest heartbeat;
  heartbeat.mutable_progress()->set_phase(forged);
  ps::CommitRequest commit;
  commit.mutable_info()->set_non_finite_variable(forged);
  ps::EvictRequest evict;
  evict.set_reason(forged);
  for (const absl::Status& status :
       {client_->Register(announced, kTimeout).status(),
        client_->Heartbeat(heartbeat, kTimeout).status(),
        client_->Commit(commit, kTimeout).status(), client_->Evict(evict, kTimeout).status()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "control character")) << status;
  }
}

TEST_F(TaskHandlerTest, AnEndlessPullPinsItsVersionButDoesNotStopTraining) {
  for (const bool mapped : {false, true}) {
    StartServer(1, mapped);
    // The pull has a grant; without a grant it would get a copy.
    ps::RegisterRequest request;
    request.set_run_id(job_.run_id());
    request.set_num_replicas(1);
    request.set_layout_signature(job_.layout_signature());
    request.set_protocol_version(kProtocolVersion);
    request.set_peer_name("test");
    request.set_session(1);
    const auto registered = Register(request);
    ASSERT_TRUE(registered.ok()) << registered.status();
    ps::PullRequest pull = PullOf(0);
    *pull.mutable_grant() = registered->grants(0);
    std::optional<PullSnapshot> held;
    server_->core().handler(0)->Pull(pull, [&held](absl::StatusOr<PullSnapshot> snapshot) {
      if (snapshot.ok()) held = *std::move(snapshot);
    });
    ASSERT_TRUE(held.has_value());
    const std::string before(held->payload.data, held->payload.size_bytes);
    TestClone clone(server_.get(), {});
    // Version 1 is written to the other buffer; version 2 would overwrite the pinned one.
    EXPECT_TRUE(server_->Await([](const auto& status) { return status.version() >= 6; }));
    EXPECT_EQ(std::string(held->payload.data, held->payload.size_bytes), before);
    held.reset();
    const uint64_t version = server_->core().Status().version();
    EXPECT_TRUE(
        server_->Await([version](const auto& status) { return status.version() >= version + 4; }));
    clone.Stop();
    clone.Join().IgnoreError();
    server_.reset();
  }
}

TEST(TaskAddressTest, DerivesPortsAndPathsFromTheFirst) {
  EXPECT_EQ(*TaskAddress("127.0.0.1:2222", 0), "127.0.0.1:2222");
  EXPECT_EQ(*TaskAddress("127.0.0.1:2222", 2), "127.0.0.1:2224");
  EXPECT_EQ(*TaskAddress("[::1]:2222", 1), "[::1]:2223");
  EXPECT_EQ(*TaskAddress("127.0.0.1:0", 2), "127.0.0.1:0");
  EXPECT_EQ(*TaskAddress("unix:/tmp/ps", 0), "unix:/tmp/ps");
  EXPECT_EQ(*TaskAddress("unix:/tmp/ps", 1), "unix:/tmp/ps.1");
  for (const char* bad : {"localhost", "localhost:http", "127.0.0.1:65535"}) {
    const absl::Status status = TaskAddress(bad, 1).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_TRUE(absl::StrContains(status.message(), bad)) << status;
  }
}

}  // namespace
}  // namespace pushpull

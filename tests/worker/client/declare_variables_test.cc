#include "worker/client/declare_variables.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"
#include "tests/testkit/fake_clock.h"
#include "tests/testkit/refusing_ps_client.h"

namespace pushpull {
namespace {

constexpr size_t kMaxBytes = 512 << 10;

// What the server has been sent, and what it answers.
struct Server {
  bool awaits_variables = true;
  // If it returns an error or a reply, that is the answer.
  std::function<absl::StatusOr<ps::DeclareReply>(const ps::DeclareRequest&)> disturb;
  std::vector<ps::DeclareRequest> parts;
  std::vector<ps::VariableEntry> variables;
  std::string values;
  size_t all_bytes = 0;
};

ps::DeclareReply Answer(uint64_t elements, bool declared = false) {
  ps::DeclareReply reply;
  reply.set_elements(elements);
  reply.set_declared(declared);
  return reply;
}

class DeclareClient final : public RefusingPsClient {
 public:
  explicit DeclareClient(Server* server) : server_(server) {}

  absl::StatusOr<ps::JobReply> GetJob(const ps::JobRequest&, absl::Duration) override {
    ps::JobReply job;
    job.set_protocol_version(kProtocolVersion);
    job.set_run_id("0123456789abcdef");
    job.set_tasks(1);
    job.add_addresses("test");
    job.set_awaits_variables(server_->awaits_variables);
    return job;
  }

  absl::StatusOr<ps::DeclareReply> DeclareVariables(const ps::DeclareRequest& part,
                                                    absl::Duration) override {
    server_->parts.push_back(part);
    EXPECT_EQ(part.run_id(), "0123456789abcdef");
    EXPECT_EQ(part.worker_id(), 3);
    EXPECT_EQ(part.session(), 77);
    EXPECT_EQ(part.peer_name(), "me");
    EXPECT_LE(part.values().size(), kMaxBytes);
    EXPECT_EQ(part.crc32c(), Crc32c(part.values()));
    if (server_->disturb) {
      const absl::StatusOr<ps::DeclareReply> answer = server_->disturb(part);
      if (!answer.ok() || answer->elements() != kUndisturbed) return answer;
    }
    if (part.variables_size() > 0) {
      EXPECT_EQ(part.first_element(), 0);
      server_->variables = {part.variables().begin(), part.variables().end()};
      server_->values.clear();
    }
    if (part.first_element() * sizeof(float) == server_->values.size()) {
      server_->values += part.values();
    }
    server_->awaits_variables = server_->values.size() < server_->all_bytes;
    return Answer(server_->values.size() / sizeof(float), !server_->awaits_variables);
  }

  static constexpr uint64_t kUndisturbed = ~uint64_t{0};

 private:
  Server* const server_;
};

absl::StatusOr<ps::DeclareReply> Undisturbed() { return Answer(DeclareClient::kUndisturbed); }

class DeclareVariablesTest : public ::testing::Test {
 protected:
  DeclareVariablesTest() {
    std::vector<VariableSpec> variables(3);
    variables[0].name = "scalar";
    variables[0].l2_weight = 0.25f;
    variables[1].name = "large";
    variables[1].shape = {1000, 400};
    variables[1].learning_rate_multiplier = 0.0f;
    variables[1].frozen = true;
    variables[2].name = "mean";
    variables[2].shape = {5};
    variables[2].kind = VariableKind::kMovingStatistic;
    variables[2].moving_average_decay = 0.9f;
    layout_ = *VariableLayout::Create(variables);
    for (int64_t i = 0; i < layout_->num_variables(); ++i) {
      values_.emplace_back();
      for (int64_t k = 0; k < layout_->num_elements(i); ++k) {
        values_.back().push_back(static_cast<float>(expected_.size() / sizeof(float)));
        expected_.append(reinterpret_cast<const char*>(&values_.back().back()), sizeof(float));
      }
    }
    server_.all_bytes = expected_.size();
  }

  absl::Status Declare() {
    PsSession::Options options;
    options.worker_id = 3;
    options.num_replicas = 4;
    options.peer_name = "me";
    options.identity = {77, 1};
    PsSession session(
        options, [this](const std::string&) { return std::make_unique<DeclareClient>(&server_); },
        &clock_, [this](const std::string& what) { waits_.push_back(what); });
    session_ = &session;
    EXPECT_EQ(session.Connect({"test"}), absl::OkStatus());
    std::vector<const float*> pointers;
    for (const std::vector<float>& values : values_) pointers.push_back(values.data());
    return DeclareVariables(&session, *layout_, pointers.data(), &clock_);
  }

  FakeClock clock_;
  Server server_;
  PsSession* session_ = nullptr;  // valid during Declare
  std::vector<std::string> waits_;
  std::optional<VariableLayout> layout_;
  std::vector<std::vector<float>> values_;
  std::string expected_;  // the bytes of all values
};

TEST_F(DeclareVariablesTest, SendsAllValuesInParts) {
  EXPECT_EQ(Declare(), absl::OkStatus());
  EXPECT_TRUE(server_.values == expected_);
  EXPECT_EQ(server_.parts.size(), 4) << "1.6 MB, at most 512 KiB in each";
  ASSERT_EQ(server_.variables.size(), 3);
  EXPECT_EQ(server_.variables[0].name(), "scalar");
  EXPECT_EQ(server_.variables[0].shape_size(), 0);
  EXPECT_EQ(server_.variables[0].l2_weight(), 0.25f);
  EXPECT_FALSE(server_.variables[0].has_learning_rate_multiplier()) << "absent: 1";
  EXPECT_TRUE(server_.variables[1].has_learning_rate_multiplier());
  EXPECT_EQ(server_.variables[1].learning_rate_multiplier(), 0.0f);
  EXPECT_TRUE(server_.variables[1].frozen());
  EXPECT_TRUE(server_.variables[2].moving_statistic());
  EXPECT_EQ(server_.variables[2].moving_average_decay(), 0.9f);
}

TEST_F(DeclareVariablesTest, ReportsHowMuchIsDeclared) {
  server_.disturb = [&](const ps::DeclareRequest&) {
    clock_.Advance(absl::Milliseconds(700));
    return Undisturbed();
  };
  EXPECT_EQ(Declare(), absl::OkStatus());
  EXPECT_EQ(waits_, (std::vector<std::string>{"the declaration of the variables: 0 of 1 MB",
                                              "the declaration of the variables: 1 of 1 MB"}));
}

TEST_F(DeclareVariablesTest, StopsAfterThePartUnderWay) {
  server_.disturb = [&](const ps::DeclareRequest&) {
    if (server_.parts.size() == 2) session_->Stop();
    return Undisturbed();
  };
  EXPECT_TRUE(absl::IsCancelled(Declare()));
  EXPECT_EQ(server_.parts.size(), 2);
}

TEST_F(DeclareVariablesTest, RepeatsPartsWhoseAnswerIsLost) {
  int calls = 0;
  server_.disturb = [&](const ps::DeclareRequest& part) -> absl::StatusOr<ps::DeclareReply> {
    ++calls;
    if (calls == 2) return absl::UnavailableError("the request is lost");
    if (calls != 4) return Undisturbed();
    server_.values += part.values();
    return absl::DeadlineExceededError("the reply is lost");
  };
  EXPECT_EQ(Declare(), absl::OkStatus());
  EXPECT_TRUE(server_.values == expected_);
  EXPECT_EQ(server_.parts.size(), 6);
}

TEST_F(DeclareVariablesTest, BeginsAgainAfterTheServerHasLostEverything) {
  int calls = 0;
  server_.disturb = [&](const ps::DeclareRequest& part) -> absl::StatusOr<ps::DeclareReply> {
    ++calls;
    if (calls == 3) server_.values.clear();
    if (calls == 3) return absl::UnavailableError("the server restarts");
    if (server_.values.empty() && part.variables_size() == 0) return Answer(0);
    return Undisturbed();
  };
  EXPECT_EQ(Declare(), absl::OkStatus());
  EXPECT_TRUE(server_.values == expected_);
}

TEST_F(DeclareVariablesTest, LeavesTheTurnToAnotherClone) {
  int calls = 0;
  server_.disturb = [&](const ps::DeclareRequest&) -> absl::StatusOr<ps::DeclareReply> {
    server_.awaits_variables = ++calls < 1000;
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::NOT_READY);
    return MakeError(detail, "clone 1 declares");
  };
  EXPECT_EQ(Declare(), absl::OkStatus());
  EXPECT_EQ(calls, 1000) << "however long it takes";
  EXPECT_TRUE(server_.values.empty());
}

TEST_F(DeclareVariablesTest, AVariableThatTheServerRefusesIsAnError) {
  server_.disturb = [](const ps::DeclareRequest&) -> absl::StatusOr<ps::DeclareReply> {
    return absl::InvalidArgumentError("large is too large");
  };
  EXPECT_EQ(Declare(), absl::InvalidArgumentError("large is too large"));
  EXPECT_EQ(server_.parts.size(), 1);
}

TEST_F(DeclareVariablesTest, EndsIfTheServerNeverHasWhatItWasSent) {
  server_.disturb = [](const ps::DeclareRequest& part) -> absl::StatusOr<ps::DeclareReply> {
    return Answer(part.variables_size() > 0 ? 1000 : 0);
  };
  EXPECT_TRUE(absl::IsInternal(Declare()));
  EXPECT_LT(server_.parts.size(), 100);
  server_.parts.clear();
  server_.disturb = [](const ps::DeclareRequest&) -> absl::StatusOr<ps::DeclareReply> {
    return Answer(uint64_t{1} << 40);
  };
  EXPECT_TRUE(absl::IsInternal(Declare()));
  EXPECT_EQ(server_.parts.size(), 1);
}

TEST_F(DeclareVariablesTest, SendsADamagedPartAgain) {
  int calls = 0;
  bool always = false;
  server_.disturb = [&](const ps::DeclareRequest&) -> absl::StatusOr<ps::DeclareReply> {
    if (++calls % 2 == 0 && !always) return Undisturbed();
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::BAD_CHECKSUM);
    return MakeError(detail, "damaged");
  };
  EXPECT_EQ(Declare(), absl::OkStatus());
  EXPECT_TRUE(server_.values == expected_);
  always = true;
  server_.awaits_variables = true;
  EXPECT_TRUE(absl::IsDataLoss(Declare()));
}

TEST_F(DeclareVariablesTest, NamesTheFirstValueThatIsNotFinite) {
  values_[1][17] = NAN;
  const absl::Status status = Declare();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_TRUE(absl::StrContains(status.message(), "large[17] is nan")) << status;
  EXPECT_TRUE(server_.parts.empty());
}

// gRPC limits the size of a message, and the names of many variables need room in the first one.
TEST_F(DeclareVariablesTest, ManyNamesFitIntoTheFirstPart) {
  std::vector<VariableSpec> variables(9000);
  values_.clear();
  for (size_t i = 0; i < variables.size(); ++i) {
    variables[i].name = absl::StrCat(std::string(60, 'x'), i);
    variables[i].shape = {20};
    values_.emplace_back(20, static_cast<float>(i));
  }
  layout_ = *VariableLayout::Create(variables);
  server_.all_bytes = variables.size() * 20 * sizeof(float);
  EXPECT_EQ(Declare(), absl::OkStatus());
  EXPECT_EQ(server_.values.size(), server_.all_bytes);
  EXPECT_LT(server_.parts.front().ByteSizeLong(), size_t{1} << 20);
}

}  // namespace
}  // namespace pushpull

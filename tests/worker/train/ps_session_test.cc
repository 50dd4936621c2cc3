// What a clone makes of answers that do not fit the job.
#include "worker/train/ps_session.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

#include "common/clock.h"
#include "common/rpc/in_process_ps_client.h"
#include "common/sharding.h"
#include "tests/common/rpc/fake_ps_handler.h"

namespace pushpull {
namespace {

constexpr int64_t kElements = Sharding::kFirstChunkElements + 10;  // two chunks

class OneTaskHandler final : public FakePsHandler {
 public:
  void GetJob(const ps::JobRequest& request, Done<ps::JobReply> done) override {
    ps::JobReply reply;
    reply.set_protocol_version(request.protocol_version());
    reply.set_tasks(1);
    reply.add_addresses("task 0");
    done(reply);
  }
};

class PsSessionPullTest : public ::testing::Test {
 protected:
  PsSessionPullTest()
      : session_(
            {},
            [this](const std::string& address) {
              return MakeInProcessPsClient(&handler_, address, nullptr);
            },
            &clock_, nullptr) {
    EXPECT_TRUE(session_.Connect({"task 0"}).ok());
  }

  absl::Status Pull(int64_t sent_elements) {
    handler_.weights = MakePayload(sent_elements * sizeof(float), 1);
    told_.clear();
    return session_
        .Pull(0, /*exact=*/false, absl::Seconds(1), absl::MakeSpan(weights_),
              [this](int64_t first, int64_t end) {
                told_.emplace_back(first, end);
                const size_t bytes = (end - first) * sizeof(float);
                EXPECT_EQ(
                    std::string(reinterpret_cast<const char*>(weights_.data() + first), bytes),
                    ToString(handler_.weights).substr(first * sizeof(float), bytes));
              })
        .status();
  }

  OneTaskHandler handler_;
  SteadyClock clock_;
  PsSession session_;
  std::vector<float> weights_ = std::vector<float>(kElements);
  std::vector<std::pair<int64_t, int64_t>> told_;  // by the last pull, of elements
};

TEST_F(PsSessionPullTest, BringsTheWeights) {
  const absl::Status status = Pull(kElements);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(weights_.data()), kElements * sizeof(float)),
            ToString(handler_.weights));
  using Range = std::pair<int64_t, int64_t>;
  const int64_t chunk = Sharding::kFirstChunkElements;
  EXPECT_EQ(told_, (std::vector<Range>{{0, 0}, {0, chunk}, {chunk, kElements}}));
}

TEST_F(PsSessionPullTest, RefusesWhatDoesNotFitTheModel) {
  for (const int64_t elements : {int64_t{10}, kElements - 1, kElements + 1}) {
    const absl::Status status = Pull(elements);
    EXPECT_TRUE(absl::IsDataLoss(status)) << elements << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "ps task 0 at task 0 sent chunk")) << status;
  }
  // Chunks that are missing may come yet; those past the last have no place.
  EXPECT_TRUE(absl::IsUnavailable(Pull(Sharding::kFirstChunkElements)));
  weights_.resize(Sharding::kFirstChunkElements);
  const absl::Status status = Pull(kElements);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "more chunks of shard 0 than the 1 it has"))
      << status;
}

}  // namespace
}  // namespace pushpull

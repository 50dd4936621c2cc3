#include "ps_server/core/declaration.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/wire/error_detail.h"
#include "tests/testkit/declaration_parts.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLease = absl::Seconds(10);

VariableLayout TestLayout() {
  std::vector<VariableSpec> variables(4);
  variables[0].name = "conv.weight";
  variables[0].shape = {3, 5, 7};
  variables[0].l2_weight = 0.25f;
  variables[1].name = "bn.running_mean";
  variables[1].shape = {13};
  variables[1].kind = VariableKind::kMovingStatistic;
  variables[1].moving_average_decay = 0.9f;
  variables[2].name = "scale";  // a scalar
  variables[2].learning_rate_multiplier = 0.0f;
  variables[3].name = "fc.weight";
  variables[3].shape = {40, 50};
  variables[3].frozen = true;
  return *VariableLayout::Create(std::move(variables));
}

constexpr int64_t kElements = 105 + 13 + 1 + 2000;

class DeclarationTest : public ::testing::Test {
 protected:
  static DeclarationOptions Options() {
    DeclarationOptions options;
    options.run_id = std::string(16, 'r');
    options.lease = kLease;
    options.max_elements = 100000;
    options.check_layout = [](const VariableLayout&) { return absl::OkStatus(); };
    return options;
  }
  DeclaringClone CloneOf(uint32_t worker_id) const {
    DeclaringClone clone;
    clone.run_id = std::string(16, 'r');
    clone.worker_id = worker_id;
    clone.session = 100 + worker_id;
    clone.peer_name = "host " + std::to_string(worker_id);
    clone.part_elements = 100;
    return clone;
  }
  std::vector<ps::DeclareRequest> PartsOf(uint32_t worker_id, uint64_t seed) const {
    return DeclarationParts(layout_, ValuesFor(layout_, seed), CloneOf(worker_id));
  }
  absl::StatusOr<ps::DeclareReply> Take(const ps::DeclareRequest& part) {
    return declaration_.Take(part, now_);
  }
  // Takes the part and returns the number of elements in the reply.
  uint64_t Elements(const ps::DeclareRequest& part) {
    const auto reply = Take(part);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->elements() : ~uint64_t{0};
  }
  void TakeAll(const std::vector<ps::DeclareRequest>& parts) {
    for (const ps::DeclareRequest& part : parts) {
      EXPECT_EQ(Elements(part), part.first_element() + part.values().size() / 4);
    }
  }

  const VariableLayout layout_ = TestLayout();
  Declaration declaration_{Options()};
  absl::Duration now_ = absl::Seconds(500);
};

TEST_F(DeclarationTest, CollectsVariablesAndValues) {
  const std::vector<ps::DeclareRequest> parts = PartsOf(0, 1);
  ASSERT_EQ(parts.size(), 22);
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_FALSE(declaration_.complete());
    TakeAll({parts[i]});
  }
  ASSERT_TRUE(declaration_.complete());
  const VariableLayout& layout = declaration_.layout();
  EXPECT_EQ(layout.DescribeDifference(layout_), "");
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const VariableSpec& expected = layout_.variables()[i];
    const VariableSpec& actual = layout.variables()[i];
    EXPECT_EQ(actual.l2_weight, expected.l2_weight);
    EXPECT_EQ(actual.learning_rate_multiplier, expected.learning_rate_multiplier);
    EXPECT_EQ(actual.frozen, expected.frozen);
    EXPECT_EQ(actual.moving_average_decay, expected.moving_average_decay);
  }
  EXPECT_EQ(declaration_.TakeValues(), ValuesFor(layout_, 1));
  // A clone that asks later gets the number of all elements, whatever it sends.
  EXPECT_EQ(Elements(PartsOf(3, 9)[0]), kElements);
}

TEST_F(DeclarationTest, PartsMayHaveAnyLength) {
  for (const int64_t part_elements : {1, 3, 105, 106, 118, 119, 5000}) {
    Declaration declaration(Options());
    DeclaringClone clone = CloneOf(0);
    clone.part_elements = part_elements;
    for (const auto& part : DeclarationParts(layout_, ValuesFor(layout_, 4), clone)) {
      ASSERT_TRUE(declaration.Take(part, now_).ok());
    }
    ASSERT_TRUE(declaration.complete()) << part_elements;
    EXPECT_EQ(declaration.TakeValues(), ValuesFor(layout_, 4)) << part_elements;
  }
}

TEST_F(DeclarationTest, RepeatedLateAndLostPartsDoNoHarm) {
  const std::vector<ps::DeclareRequest> parts = PartsOf(0, 1);
  TakeAll({parts[0], parts[1]});
  EXPECT_EQ(Elements(parts[1]), 200) << "repeated";
  EXPECT_EQ(Elements(parts[3]), 200) << "part 2 was lost";
  TakeAll({parts[2], parts[3]});
  EXPECT_EQ(Elements(parts[1]), 400) << "late";
  // The same in any order: a part counts only if it begins where the values end.
  CounterRandom random(7, 0);
  for (int i = 0; i < 5000 && !declaration_.complete(); ++i) {
    const size_t index = 1 + random.NextBelow(parts.size() - 1);
    ASSERT_TRUE(Take(parts[index]).ok());
  }
  ASSERT_TRUE(declaration_.complete());
  EXPECT_EQ(declaration_.TakeValues(), ValuesFor(layout_, 1));
}

TEST_F(DeclarationTest, TheFirstPartBeginsAnew) {
  const std::vector<ps::DeclareRequest> old = PartsOf(0, 1);
  TakeAll({old[0], old[1], old[2]});
  // The supervisor has started the clone again. Its values differ, and so does its peer_name.
  DeclaringClone clone = CloneOf(0);
  clone.peer_name = "host 0, restarted";
  const auto parts = DeclarationParts(layout_, ValuesFor(layout_, 2), clone);
  TakeAll({parts[0]});
  EXPECT_EQ(Elements(old[1]), 0) << "a late part of the earlier process";
  TakeAll({parts[1]});
  EXPECT_EQ(Elements(old[2]), 0);
  TakeAll({parts.begin() + 2, parts.end()});
  ASSERT_TRUE(declaration_.complete());
  EXPECT_EQ(declaration_.TakeValues(), ValuesFor(layout_, 2));
}

TEST_F(DeclarationTest, OneCloneAtATime) {
  const std::vector<ps::DeclareRequest> first = PartsOf(0, 1);
  const std::vector<ps::DeclareRequest> second = PartsOf(1, 2);
  TakeAll({first[0]});
  now_ += 0.9 * kLease;
  TakeAll({first[1]});
  now_ += 0.9 * kLease;
  for (const ps::DeclareRequest& part : {second[0], second[1]}) {
    const absl::Status waits = Take(part).status();
    EXPECT_EQ(GetErrorDetail(waits).kind(), ps::ErrorDetail::NOT_READY);
    EXPECT_THAT(std::string(waits.message()), HasSubstr("clone 0 (host 0)"));
  }
  // The first clone has been silent for a lease.
  now_ += 0.1 * kLease;
  EXPECT_EQ(Elements(second[1]), 0) << "only the first part takes the turn";
  TakeAll({second[0], second[1]});
  EXPECT_EQ(GetErrorDetail(Take(first[2]).status()).kind(), ps::ErrorDetail::NOT_READY);
  TakeAll({second.begin() + 2, second.end()});
  ASSERT_TRUE(declaration_.complete());
  EXPECT_EQ(declaration_.TakeValues(), ValuesFor(layout_, 2));
}

TEST_F(DeclarationTest, AClonesWrongPartKeepsItsTurn) {
  const std::vector<ps::DeclareRequest> parts = PartsOf(0, 1);
  TakeAll({parts[0]});
  now_ += 0.9 * kLease;
  ps::DeclareRequest damaged = parts[1];
  damaged.set_crc32c(damaged.crc32c() ^ 1);
  EXPECT_EQ(GetErrorDetail(Take(damaged).status()).kind(), ps::ErrorDetail::BAD_CHECKSUM);
  now_ += 0.9 * kLease;
  EXPECT_FALSE(Take(PartsOf(1, 2)[0]).ok());
  TakeAll({parts.begin() + 1, parts.end()});
  EXPECT_TRUE(declaration_.complete());
}

TEST_F(DeclarationTest, RefusesAnotherRun) {
  std::vector<ps::DeclareRequest> parts = PartsOf(0, 1);
  parts[0].set_run_id(std::string(16, 'x'));
  EXPECT_EQ(GetErrorDetail(Take(parts[0]).status()).kind(), ps::ErrorDetail::WRONG_RUN);
}

TEST_F(DeclarationTest, NamesTheFirstValueThatIsNotFinite) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = ValuesFor(layout_, 1);
    values[layout_.offset(3) + 1234] = bad;
    values[layout_.offset(3) + 1235] = bad;
    bool refused = false;
    for (const auto& part : DeclarationParts(layout_, values, CloneOf(0))) {
      const auto reply = Take(part);
      if (reply.ok()) continue;
      refused = true;
      const ps::ErrorDetail detail = GetErrorDetail(reply.status());
      EXPECT_EQ(detail.kind(), ps::ErrorDetail::NON_FINITE);
      EXPECT_EQ(detail.variable(), "fc.weight");
      EXPECT_EQ(detail.index(), 1234);
      EXPECT_THAT(std::string(reply.status().message()), HasSubstr("fc.weight"));
      break;
    }
    EXPECT_TRUE(refused);
    EXPECT_FALSE(declaration_.complete());
  }
}

TEST_F(DeclarationTest, RefusesWrongSizes) {
  ps::DeclareRequest part = PartsOf(0, 1)[0];
  const auto refusal = [this](ps::DeclareRequest request) {
    request.set_crc32c(Crc32c(request.values()));
    const absl::Status status = Take(request).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  part.set_values(std::string(10, 'x'));
  EXPECT_THAT(refusal(part), HasSubstr("10 bytes"));
  part.set_values(std::string(Declaration::kMaxPartBytes + 4, '\0'));
  EXPECT_THAT(refusal(part), HasSubstr("at most 524288"));
  part.set_values(std::string((kElements + 1) * 4, '\0'));
  EXPECT_THAT(refusal(part), HasSubstr("the variables have 2119 elements"));
  part.set_values("");
  part.set_first_element(4);
  EXPECT_THAT(refusal(part), HasSubstr("begins at element 4"));
  part.set_first_element(0);
  *part.mutable_variables(3)->mutable_shape()->Mutable(0) = 100000;
  EXPECT_THAT(refusal(part), HasSubstr("memory of the server's machine holds 100000"));
  EXPECT_FALSE(declaration_.complete());
  // Nothing of that has taken the turn.
  TakeAll(PartsOf(1, 1));
  EXPECT_TRUE(declaration_.complete());
}

TEST_F(DeclarationTest, ARefusedFirstPartLeavesWhatWasDeclared) {
  const std::vector<ps::DeclareRequest> parts = PartsOf(0, 1);
  TakeAll({parts[0], parts[1]});
  ps::DeclareRequest wrong = parts[0];
  wrong.mutable_variables(0)->set_l2_weight(-1.0f);
  EXPECT_TRUE(absl::IsInvalidArgument(Take(wrong).status()));
  TakeAll({parts.begin() + 2, parts.end()});
  ASSERT_TRUE(declaration_.complete());
  EXPECT_EQ(declaration_.TakeValues(), ValuesFor(layout_, 1));
}

TEST_F(DeclarationTest, SaysWhatItWaitsFor) {
  EXPECT_THAT(declaration_.WaitingFor(), HasSubstr("a clone that declares"));
  TakeAll({PartsOf(2, 1)[0]});
  EXPECT_THAT(declaration_.WaitingFor(), HasSubstr("clone 2 (host 2)"));
  EXPECT_THAT(declaration_.WaitingFor(), HasSubstr("100 of the external model's 2119 elements"));
}

}  // namespace
}  // namespace pushpull

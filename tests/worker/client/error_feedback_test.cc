#include "worker/client/error_feedback.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/random.h"

namespace pushpull {
namespace {

constexpr int64_t kElements = 3000;  // not a multiple of a block or a page

// Gradients like those of a layer: most elements are far smaller than their block's largest one.
std::vector<float> Gradient(uint64_t round) {
  CounterRandom random(7, round);
  std::vector<float> gradient(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    const float size = i % 32 == 0 ? 1.0f : 1e-3f;
    gradient[i] = size * (0.3f + static_cast<float>(random.NextNormal()));
  }
  return gradient;
}

struct Sent {
  std::string bytes;
  std::vector<float> values;
};

Sent Send(ErrorFeedback* feedback, const std::vector<float>& gradient, int64_t first = 0) {
  Sent sent;
  const auto size = static_cast<int64_t>(gradient.size());
  sent.bytes.resize(Int8Codec().EncodedBytes(size));
  sent.values.resize(size);
  feedback->Encode(first, gradient, sent.bytes.data());
  Int8Codec().Decode(sent.bytes.data(), size, 0, size, sent.values.data());
  return sent;
}

// Half of the quantum in which a block with this largest magnitude is sent, rounding included.
double HalfQuantum(double largest) { return 0.5 * largest / 127 * (1 + 1.0 / 64); }

TEST(ErrorFeedbackTest, TheSumOfWhatIsSentFollowsTheSumOfTheGradients) {
  ErrorFeedback feedback(kElements, {}, &Int8Codec());
  std::vector<double> sum(kElements), sent_sum(kElements), plain_sum(kElements);
  double largest = 0.0;
  for (uint64_t round = 0; round < 300; ++round) {
    const std::vector<float> gradient = Gradient(round);
    const Sent sent = Send(&feedback, gradient);
    feedback.Accept();
    ErrorFeedback none(kElements, {}, &Int8Codec());
    const Sent plain = Send(&none, gradient);
    for (int64_t i = 0; i < kElements; ++i) {
      sum[i] += gradient[i];
      sent_sum[i] += sent.values[i];
      plain_sum[i] += plain.values[i];
      largest = std::max(largest, 1.1 * std::abs(static_cast<double>(gradient[i])));
    }
  }
  double worst = 0.0, worst_plain = 0.0;
  for (int64_t i = 0; i < kElements; ++i) {
    worst = std::max(worst, std::abs(sum[i] - sent_sum[i]));
    worst_plain = std::max(worst_plain, std::abs(sum[i] - plain_sum[i]));
  }
  EXPECT_LE(worst, HalfQuantum(largest) + 1e-4) << "one residual, not the sum of 300 errors";
  EXPECT_GT(worst_plain, 4 * worst) << "without feedback the errors add up";
}

TEST(ErrorFeedbackTest, SendsTheSameBytesUntilTheContributionIsAccepted) {
  ErrorFeedback feedback(kElements, {}, &Int8Codec());
  Send(&feedback, Gradient(0));
  feedback.Accept();
  const std::vector<float> residual(feedback.residual().begin(), feedback.residual().end());
  EXPECT_NE(residual, std::vector<float>(kElements));
  const Sent first = Send(&feedback, Gradient(1));
  Send(&feedback, Gradient(2));  // abandoned
  EXPECT_EQ(Send(&feedback, Gradient(1)).bytes, first.bytes);
  EXPECT_EQ(feedback.residual(), absl::MakeConstSpan(residual));
  feedback.Accept();
  EXPECT_NE(Send(&feedback, Gradient(1)).bytes, first.bytes);
}

TEST(ErrorFeedbackTest, ChunksAreIndependent) {
  ErrorFeedback whole(kElements, {{100, 900}}, &Int8Codec());
  ErrorFeedback parts(kElements, {{100, 900}}, &Int8Codec());
  for (uint64_t round = 0; round < 3; ++round) {
    const std::vector<float> gradient = Gradient(round);
    const Sent all = Send(&whole, gradient);
    // Chunks begin at multiples of a page; the end goes first.
    const int64_t cut = 2048;
    const Sent back = Send(&parts, {gradient.begin() + cut, gradient.end()}, cut);
    const Sent front = Send(&parts, {gradient.begin(), gradient.begin() + cut});
    EXPECT_EQ(front.bytes + back.bytes, all.bytes);
    whole.Accept();
    parts.Accept();
    EXPECT_EQ(whole.residual(), parts.residual());
  }
}

TEST(ErrorFeedbackTest, AMovingStatisticNeverChangesItsSign) {
  // Variances of very different sizes share a block, and so do means with them.
  const std::vector<ElementRange> statistics = {{16, 48}, {1000, 1064}};
  ErrorFeedback feedback(kElements, statistics, &Int8Codec());
  std::vector<double> sum(kElements), sent_sum(kElements);
  int turned = 0;
  for (uint64_t round = 0; round < 200; ++round) {
    std::vector<float> gradient = Gradient(round);
    for (const ElementRange& range : statistics) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        const bool is_variance = i % 2 == 0;
        const float size = i % 32 < 3 ? 30.0f : 0.01f;
        gradient[i] = size * (is_variance ? std::abs(gradient[i]) : gradient[i]);
        if (i % 11 == 0) gradient[i] = 0.0f;
      }
    }
    const std::vector<float> residual(feedback.residual().begin(), feedback.residual().end());
    const Sent sent = Send(&feedback, gradient);
    feedback.Accept();
    for (const ElementRange& range : statistics) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        ASSERT_GE(sent.values[i] * gradient[i], 0.0f) << "round " << round << ", element " << i;
        if (gradient[i] == 0.0f) {
          ASSERT_EQ(sent.values[i], 0.0f) << round << " " << i;
        }
        turned += (gradient[i] + residual[i]) * gradient[i] < 0.0f;
        sum[i] += gradient[i];
        sent_sum[i] += sent.values[i];
      }
    }
  }
  EXPECT_GT(turned, 100) << "the residual would have turned none around";
  // What was held back is not lost.
  for (const ElementRange& range : statistics) {
    for (int64_t i = range.begin; i < range.end; i += 2) {
      EXPECT_NEAR(sent_sum[i], sum[i], HalfQuantum(30 * 6) + 1e-3) << i;
    }
  }
}

TEST(ErrorFeedbackTest, ANonFiniteGradientIsSentAsSuchAndLeavesAFiniteResidual) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::nanf(""), 3.4e38f}) {
    ErrorFeedback feedback(kElements, {{0, 64}}, &Int8Codec());
    Send(&feedback, Gradient(0));
    feedback.Accept();
    for (const int64_t at : {5, 1500, 2999}) {
      std::vector<float> gradient = Gradient(1);
      gradient[at] = bad;
      const Sent sent = Send(&feedback, gradient);
      EXPECT_EQ(Int8Codec().FindNonFinite(sent.bytes.data(), kElements), at);
    }
    feedback.Accept();
    for (const float value : feedback.residual()) ASSERT_TRUE(std::isfinite(value)) << bad;
  }
}

TEST(ErrorFeedbackTest, FindsTheMovingStatisticsOfALayout) {
  std::vector<VariableSpec> variables(3);
  const char* const names[] = {"weights", "variance", "bias"};
  for (int i = 0; i < 3; ++i) {
    variables[i].name = names[i];
    variables[i].shape = {i == 0 ? 20 : 5};
  }
  variables[1].kind = VariableKind::kMovingStatistic;
  const auto layout = VariableLayout::Create(variables);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(MovingStatisticsOf(*layout), (std::vector<ElementRange>{{32, 37}}));
}

}  // namespace
}  // namespace pushpull

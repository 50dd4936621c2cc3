#include "kernels/cpu/prefetcher.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/cpu/row_source.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kStepBytes = Prefetcher::kLinesPerStep * Prefetcher::kLineBytes;

// The pieces that are left: the address and the number of bytes of each.
std::vector<std::pair<const void*, int64_t>> Left(const Prefetcher& prefetcher) {
  std::vector<std::pair<const void*, int64_t>> left;
  for (const Prefetcher::Piece& piece : prefetcher.left())
    left.emplace_back(piece.begin, piece.bytes);
  return left;
}

std::pair<const void*, int64_t> Is(const void* begin, int64_t bytes) { return {begin, bytes}; }

TEST(Prefetcher, GoesThroughThePiecesStepByStep) {
  const std::vector<char> first(kStepBytes + 1), second(kStepBytes);
  Prefetcher prefetcher;
  prefetcher.Add(first.data(), kStepBytes + 1);
  prefetcher.Add(second.data(), kStepBytes);
  prefetcher.Step();
  EXPECT_THAT(Left(prefetcher),
              ElementsAre(Is(first.data() + kStepBytes, 1), Is(second.data(), kStepBytes)));
  // The last byte of the first piece takes one of the step's lines.
  prefetcher.Step();
  EXPECT_THAT(Left(prefetcher), ElementsAre(Is(second.data() + kStepBytes - Prefetcher::kLineBytes,
                                               Prefetcher::kLineBytes)));
  prefetcher.Step();
  EXPECT_THAT(Left(prefetcher), IsEmpty());
  prefetcher.Step();
  EXPECT_THAT(Left(prefetcher), IsEmpty());
}

TEST(Prefetcher, DoesNotAskForALineBehindAPieceOfWholeLines) {
  const std::vector<char> first(kStepBytes), second(1);
  Prefetcher prefetcher;
  prefetcher.Add(first.data(), kStepBytes - Prefetcher::kLineBytes);
  prefetcher.Add(second.data(), 1);
  prefetcher.Step();
  EXPECT_THAT(Left(prefetcher), IsEmpty());
}

TEST(Prefetcher, CountsInNumbers) {
  const float numbers[3] = {};
  Prefetcher prefetcher;
  prefetcher.Add(numbers, 0);
  prefetcher.Add(numbers, 3);
  EXPECT_THAT(Left(prefetcher), ElementsAre(Is(numbers, 12)));
}

TEST(Prefetcher, LeavesOutPiecesForWhichThereIsNoRoom) {
  const std::vector<char> bytes(64);
  Prefetcher prefetcher;
  for (size_t i = 0; i < Prefetcher::kMaxPieces + 1; ++i) prefetcher.Add(&bytes[i], 1);
  ASSERT_EQ(prefetcher.left().size(), Prefetcher::kMaxPieces);
  EXPECT_EQ(prefetcher.left().back().begin, &bytes[Prefetcher::kMaxPieces - 1]);
  while (!prefetcher.left().empty()) prefetcher.Step();
}

// Tensors of five pixels of three channels, of which rows 1 and 2 are packed next.
template <typename T>
class PrefetchOfRows : public testing::Test {
 protected:
  static constexpr int64_t kChannels = 3;
  static constexpr int64_t kBytes = 2 * kChannels * static_cast<int64_t>(sizeof(T));

  std::vector<std::pair<const void*, int64_t>> LeftOf(const RowSource<T>& source) {
    Prefetcher prefetcher;
    source.AddTo(&prefetcher, 1, 2);
    return Left(prefetcher);
  }

  static const T* Row1(const std::vector<T>& tensor) { return tensor.data() + kChannels; }

  const std::vector<T> a_ = std::vector<T>(5 * kChannels), b_ = std::vector<T>(5 * kChannels);
  BatchNorm<float> norm_;
  Arena arena_;  // only counts
  const LazyCoefficients value_coefficients_{kChannels, &arena_};
  const GradientCoefficients gradient_coefficients_{kChannels, &arena_};
};

using Types = testing::Types<float, Bfloat16>;
TYPED_TEST_SUITE(PrefetchOfRows, Types);

TYPED_TEST(PrefetchOfRows, NamesWhatAValueIsMadeOf) {
  const int64_t bytes = this->kBytes;
  Lazy<TypeParam> x;
  x.shape = {1, 1, 5, this->kChannels};
  x.raw = this->a_.data();
  const ValueRows<TypeParam> rows(x, this->value_coefficients_);
  EXPECT_THAT(this->LeftOf(rows), ElementsAre(Is(this->Row1(this->a_), bytes)));
  x.skip = this->b_.data();
  EXPECT_THAT(this->LeftOf(rows),
              ElementsAre(Is(this->Row1(this->a_), bytes), Is(this->Row1(this->b_), bytes)));
  x.applied = this->b_.data();
  EXPECT_THAT(this->LeftOf(rows), ElementsAre(Is(this->Row1(this->b_), bytes)));
}

TYPED_TEST(PrefetchOfRows, NamesWhatAGradientIsMadeOf) {
  const int64_t bytes = this->kBytes;
  OutputGradient<TypeParam> dy;
  dy.dz = this->a_.data();
  dy.raw = this->b_.data();
  const GradientRows<TypeParam> rows(this->kChannels, dy, this->gradient_coefficients_);
  EXPECT_THAT(this->LeftOf(rows), ElementsAre(Is(this->Row1(this->a_), bytes)));
  dy.batch_norm = &this->norm_;
  EXPECT_THAT(this->LeftOf(rows),
              ElementsAre(Is(this->Row1(this->a_), bytes), Is(this->Row1(this->b_), bytes)));
  this->norm_.statistics = Statistics::kFrozen;
  EXPECT_THAT(this->LeftOf(rows), ElementsAre(Is(this->Row1(this->a_), bytes)));
}

}  // namespace
}  // namespace pushpull

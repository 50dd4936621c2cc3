#include "kernels/cpu/read_ahead.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/cpu/row_source.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kStepBytes = ReadAhead::kLinesPerStep * ReadAhead::kLineBytes;

// The pieces that are left: the address and the number of bytes of each.
std::vector<std::pair<const void*, int64_t>> Left(const ReadAhead& ahead) {
  std::vector<std::pair<const void*, int64_t>> left;
  for (const ReadAhead::Piece& piece : ahead.left()) left.emplace_back(piece.begin, piece.bytes);
  return left;
}

std::pair<const void*, int64_t> Is(const void* begin, int64_t bytes) { return {begin, bytes}; }

TEST(ReadAhead, GoesThroughThePiecesStepByStep) {
  const std::vector<char> first(kStepBytes + 1), second(kStepBytes);
  ReadAhead ahead;
  ahead.Add(first.data(), kStepBytes + 1);
  ahead.Add(second.data(), kStepBytes);
  ahead.Step();
  EXPECT_THAT(Left(ahead),
              ElementsAre(Is(first.data() + kStepBytes, 1), Is(second.data(), kStepBytes)));
  // The last byte of the first piece takes one of the step's lines.
  ahead.Step();
  EXPECT_THAT(Left(ahead), ElementsAre(Is(second.data() + kStepBytes - ReadAhead::kLineBytes,
                                          ReadAhead::kLineBytes)));
  ahead.Step();
  EXPECT_THAT(Left(ahead), IsEmpty());
  ahead.Step();
  EXPECT_THAT(Left(ahead), IsEmpty());
}

TEST(ReadAhead, DoesNotAskForALineBehindAPieceOfWholeLines) {
  const std::vector<char> first(kStepBytes), second(1);
  ReadAhead ahead;
  ahead.Add(first.data(), kStepBytes - ReadAhead::kLineBytes);
  ahead.Add(second.data(), 1);
  ahead.Step();
  EXPECT_THAT(Left(ahead), IsEmpty());
}

TEST(ReadAhead, CountsInNumbers) {
  const float numbers[3] = {};
  ReadAhead ahead;
  ahead.Add(numbers, 0);
  ahead.Add(numbers, 3);
  EXPECT_THAT(Left(ahead), ElementsAre(Is(numbers, 12)));
}

TEST(ReadAhead, LeavesOutPiecesForWhichThereIsNoRoom) {
  const std::vector<char> bytes(64);
  ReadAhead ahead;
  for (size_t i = 0; i < ReadAhead::kMostPieces + 1; ++i) ahead.Add(&bytes[i], 1);
  ASSERT_EQ(ahead.left().size(), ReadAhead::kMostPieces);
  EXPECT_EQ(ahead.left().back().begin, &bytes[ReadAhead::kMostPieces - 1]);
  while (!ahead.left().empty()) ahead.Step();
}

// Tensors of five pixels of three channels, of which rows 1 and 2 are packed next.
template <typename T>
class ReadAheadOfRows : public testing::Test {
 protected:
  static constexpr int64_t kChannels = 3;
  static constexpr int64_t kBytes = 2 * kChannels * static_cast<int64_t>(sizeof(T));

  std::vector<std::pair<const void*, int64_t>> LeftOf(const RowSource<T>& source) {
    ReadAhead ahead;
    source.AddTo(&ahead, 1, 2);
    return Left(ahead);
  }

  static const T* Row1(const std::vector<T>& tensor) { return tensor.data() + kChannels; }

  const std::vector<T> a_ = std::vector<T>(5 * kChannels), b_ = std::vector<T>(5 * kChannels);
  BatchNorm<float> norm_;
  Arena arena_;  // only counts
  const LazyCoefficients value_coefficients_{kChannels, &arena_};
  const GradientCoefficients gradient_coefficients_{kChannels, &arena_};
};

using Types = testing::Types<float, Bfloat16>;
TYPED_TEST_SUITE(ReadAheadOfRows, Types);

TYPED_TEST(ReadAheadOfRows, NamesWhatAValueIsMadeOf) {
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

TYPED_TEST(ReadAheadOfRows, NamesWhatAGradientIsMadeOf) {
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

#include "ps_server/core/chunk_verifier.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "common/crc32c.h"
#include "common/error_detail.h"

namespace pushpull {
namespace {

class ChunkVerifierTest : public testing::Test {
 protected:
  ChunkVerifierTest()
      : layout_(
            *VariableLayout::Create({{.name = "a", .shape = {2000}, .initializer = {}},
                                     {.name = "b/weights", .shape = {3, 700}, .initializer = {}}})),
        sharding_(layout_.total_elements(), 2),
        values_(sharding_.chunk(1, 0).size(), 0.5f) {}

  absl::Status Verify(uint32_t shard = 1, uint32_t chunk = 0) {
    const Payload payload = Bytes();
    return VerifyChunk(payload, Crc32c(payload.data, payload.size_bytes), layout_, sharding_, shard,
                       chunk);
  }
  Payload Bytes() const {
    return {nullptr, reinterpret_cast<const char*>(values_.data()), values_.size() * sizeof(float)};
  }

  VariableLayout layout_;
  Sharding sharding_;
  std::vector<float> values_;
};

TEST_F(ChunkVerifierTest, AcceptsFiniteValues) {
  values_[3] = std::numeric_limits<float>::max();
  values_[4] = -std::numeric_limits<float>::denorm_min();
  EXPECT_TRUE(Verify().ok()) << Verify();
}

TEST_F(ChunkVerifierTest, RefusesAChunkThatDoesNotFit) {
  EXPECT_EQ(GetErrorDetail(Verify(2, 0)).kind(), ps::ErrorDetail::BAD_CHUNK);
  EXPECT_EQ(GetErrorDetail(Verify(1, 1)).kind(), ps::ErrorDetail::BAD_CHUNK);
  values_.pop_back();
  const absl::Status status = Verify();
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::BAD_CHUNK);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
}

TEST_F(ChunkVerifierTest, RefusesDamagedBytes) {
  const uint32_t crc = Crc32c(values_.data(), values_.size() * sizeof(float));
  values_.back() = 0.25f;
  const absl::Status status = VerifyChunk(Bytes(), crc, layout_, sharding_, 1, 0);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::BAD_CHECKSUM);
}

TEST_F(ChunkVerifierTest, ComparesTheChecksumThatTheReceiverComputed) {
  Payload payload = Bytes();
  const uint32_t crc = Crc32c(payload.data, payload.size_bytes);
  payload.crc32c = crc;
  EXPECT_TRUE(VerifyChunk(payload, crc, layout_, sharding_, 1, 0).ok());
  payload.crc32c = crc ^ 1;
  EXPECT_EQ(GetErrorDetail(VerifyChunk(payload, crc, layout_, sharding_, 1, 0)).kind(),
            ps::ErrorDetail::BAD_CHECKSUM);
}

TEST_F(ChunkVerifierTest, NamesTheFirstNonFiniteValueWhereverItIs) {
  const ElementRange range = sharding_.chunk(1, 0);
  for (const float bad : {std::nanf(""), -std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (const int64_t i :
         {int64_t{0}, int64_t{1}, int64_t{31}, int64_t{32}, int64_t{777}, range.size() - 1}) {
      values_.assign(values_.size(), 0.5f);
      values_[i] = bad;
      values_.back() = std::nanf("");
      const absl::Status status = Verify();
      const ps::ErrorDetail detail = GetErrorDetail(status);
      EXPECT_EQ(detail.kind(), ps::ErrorDetail::NON_FINITE) << status;
      const int64_t variable = layout_.VariableAt(range.begin + i);
      EXPECT_EQ(detail.variable(), layout_.variables()[variable].name);
      EXPECT_EQ(detail.index(), range.begin + i - layout_.offset(variable));
    }
  }
}

TEST_F(ChunkVerifierTest, ReadsUnalignedBytes) {
  values_[5] = std::nanf("");
  std::vector<char> bytes(values_.size() * sizeof(float) + 1);
  std::memcpy(bytes.data() + 1, values_.data(), values_.size() * sizeof(float));
  const Payload payload{nullptr, bytes.data() + 1, bytes.size() - 1};
  const absl::Status status =
      VerifyChunk(payload, Crc32c(payload.data, payload.size_bytes), layout_, sharding_, 1, 0);
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::NON_FINITE) << status;
}

}  // namespace
}  // namespace pushpull

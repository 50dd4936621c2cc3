#include "ps_server/core/chunk_verifier.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "common/wire/error_detail.h"
#include "common/wire/gradient_codec.h"

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
    return Verify(payload, Crc32c(payload.data, payload.size_bytes), shard, chunk);
  }
  absl::Status Verify(const Payload& payload, uint32_t crc, uint32_t shard = 1, uint32_t chunk = 0,
                      ps::GradientEncoding encoding = ps::FLOAT32) {
    ps::PushChunk header;
    header.set_shard(shard);
    header.set_chunk(chunk);
    header.set_crc32c(crc);
    header.set_encoding(encoding);
    return VerifyChunk(header, payload, layout_, sharding_);
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

TEST_F(ChunkVerifierTest, RefusesAChunkWithAWrongIndexOrSize) {
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
  const absl::Status status = Verify(Bytes(), crc);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::BAD_CHECKSUM);
}

TEST_F(ChunkVerifierTest, ComparesTheChecksumThatTheReceiverComputed) {
  Payload payload = Bytes();
  const uint32_t crc = Crc32c(payload.data, payload.size_bytes);
  payload.crc32c = crc;
  EXPECT_TRUE(Verify(payload, crc).ok());
  payload.crc32c = crc ^ 1;
  EXPECT_EQ(GetErrorDetail(Verify(payload, crc)).kind(), ps::ErrorDetail::BAD_CHECKSUM);
}

TEST_F(ChunkVerifierTest, LocatesTheFirstNonFiniteValue) {
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

TEST_F(ChunkVerifierTest, ReadsHalfPrecisionValuesByTheirEncoding) {
  const ElementRange range = sharding_.chunk(1, 0);
  std::vector<uint16_t> halves(range.size(), 0x7f7f);  // the largest finite value
  const auto verify = [&](ps::GradientEncoding encoding) {
    const Payload payload{nullptr, reinterpret_cast<const char*>(halves.data()),
                          halves.size() * sizeof(uint16_t)};
    return Verify(payload, Crc32c(payload.data, payload.size_bytes), 1, 0, encoding);
  };
  EXPECT_TRUE(verify(ps::BFLOAT16).ok()) << verify(ps::BFLOAT16);
  for (const uint16_t bad : {0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7f81}) {
    for (const int64_t i :
         {int64_t{0}, int64_t{15}, int64_t{63}, int64_t{64}, int64_t{801}, range.size() - 1}) {
      halves.assign(halves.size(), 0x8001);
      halves[i] = bad;
      halves.back() = 0x7f80;
      const ps::ErrorDetail detail = GetErrorDetail(verify(ps::BFLOAT16));
      EXPECT_EQ(detail.kind(), ps::ErrorDetail::NON_FINITE);
      const int64_t variable = layout_.VariableAt(range.begin + i);
      EXPECT_EQ(detail.variable(), layout_.variables()[variable].name);
      EXPECT_EQ(detail.index(), range.begin + i - layout_.offset(variable));
    }
  }
  // A chunk is refused under the encoding of another.
  halves.assign(halves.size(), 0);
  EXPECT_EQ(GetErrorDetail(verify(ps::FLOAT32)).kind(), ps::ErrorDetail::BAD_CHUNK);
  EXPECT_EQ(GetErrorDetail(
                Verify(Bytes(), Crc32c(values_.data(), values_.size() * 4), 1, 0, ps::BFLOAT16))
                .kind(),
            ps::ErrorDetail::BAD_CHUNK);
  const absl::Status unknown = verify(static_cast<ps::GradientEncoding>(9));
  EXPECT_EQ(GetErrorDetail(unknown).kind(), ps::ErrorDetail::BAD_CHUNK);
  EXPECT_NE(unknown.message().find("encoding 9"), std::string::npos) << unknown;
}

TEST_F(ChunkVerifierTest, RefusesInt8BlocksWithHostileScales) {
  const ElementRange range = sharding_.chunk(1, 0);
  std::string bytes(Int8Codec().EncodedBytes(range.size()), '\x11');  // each scale is 0x1111
  const auto verify = [&](size_t size) {
    const Payload payload{nullptr, bytes.data(), size};
    return Verify(payload, Crc32c(bytes.data(), size), 1, 0, ps::INT8_BLOCKS);
  };
  EXPECT_TRUE(verify(bytes.size()).ok()) << verify(bytes.size());
  for (const size_t size : {size_t{0}, bytes.size() - 1, static_cast<size_t>(range.size())}) {
    EXPECT_EQ(GetErrorDetail(verify(size)).kind(), ps::ErrorDetail::BAD_CHUNK) << size;
  }
  // Infinity, NaN, too large, and negative, in the first block, one in the middle and the last.
  for (const uint16_t scale : {0x7f80, 0x7fc0, 0x7c00, 0x8000, 0xffff}) {
    for (const int64_t block : {int64_t{0}, int64_t{7}, (range.size() - 1) / 32}) {
      std::string kept = bytes;
      std::memcpy(&bytes[34 * block], &scale, sizeof(scale));
      const ps::ErrorDetail detail = GetErrorDetail(verify(bytes.size()));
      EXPECT_EQ(detail.kind(), ps::ErrorDetail::NON_FINITE) << scale;
      const int64_t element = range.begin + 32 * block;
      const int64_t variable = layout_.VariableAt(element);
      EXPECT_EQ(detail.variable(), layout_.variables()[variable].name);
      EXPECT_EQ(detail.index(), element - layout_.offset(variable));
      bytes = std::move(kept);
    }
  }
}

TEST_F(ChunkVerifierTest, ReadsUnalignedBytes) {
  values_[5] = std::nanf("");
  std::vector<char> bytes(values_.size() * sizeof(float) + 1);
  std::memcpy(bytes.data() + 1, values_.data(), values_.size() * sizeof(float));
  const Payload payload{nullptr, bytes.data() + 1, bytes.size() - 1};
  const absl::Status status = Verify(payload, Crc32c(payload.data, payload.size_bytes));
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::NON_FINITE) << status;
}

}  // namespace
}  // namespace pushpull

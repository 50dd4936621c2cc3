#include "ps_server/core/chunk_verifier.h"

#include <immintrin.h>

#include <cstring>

#include "absl/strings/str_format.h"

#include "common/error_detail.h"

namespace pushpull {
namespace {

constexpr uint32_t kExponent = 0x7f800000;  // all ones: NaN or infinity

bool IsNonFinite(const char* data) {
  uint32_t bits;
  std::memcpy(&bits, data, sizeof(bits));
  return (bits & kExponent) == kExponent;
}

// Index of the first non-finite float, or count.
int64_t FindNonFinite(const char* data, int64_t count) {
  constexpr int64_t kBlock = 32;
  const __m256i exponent = _mm256_set1_epi32(kExponent);
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    __m256i bad = _mm256_setzero_si256();
    for (int64_t j = 0; j < kBlock; j += 8) {
      const __m256i bits =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + (i + j) * sizeof(float)));
      bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(_mm256_and_si256(bits, exponent), exponent));
    }
    if (!_mm256_testz_si256(bad, bad)) break;
  }
  while (i < count && !IsNonFinite(data + i * sizeof(float))) ++i;
  return i;
}

}  // namespace

absl::Status VerifyChunk(const Payload& payload, uint32_t crc32c, const VariableLayout& layout,
                         const Sharding& sharding, uint32_t shard, uint32_t chunk) {
  ps::ErrorDetail detail;
  if (shard >= static_cast<uint32_t>(sharding.tasks()) ||
      chunk >= static_cast<uint32_t>(sharding.num_chunks(shard))) {
    detail.set_kind(ps::ErrorDetail::BAD_CHUNK);
    return MakeError(detail, absl::StrFormat("there is no chunk %d of shard %d", chunk, shard));
  }
  const ElementRange range = sharding.chunk(shard, chunk);
  if (payload.size_bytes != range.size() * sizeof(float)) {
    detail.set_kind(ps::ErrorDetail::BAD_CHUNK);
    return MakeError(detail,
                     absl::StrFormat("chunk %d of shard %d has %d bytes, expected %d", chunk, shard,
                                     payload.size_bytes, range.size() * sizeof(float)));
  }
  const uint32_t actual = Crc32cOf(payload);
  if (actual != crc32c) {
    detail.set_kind(ps::ErrorDetail::BAD_CHECKSUM);
    return MakeError(detail, absl::StrFormat("chunk %d of shard %d arrived damaged: CRC32C is "
                                             "%08x, the sender computed %08x",
                                             chunk, shard, actual, crc32c));
  }
  const int64_t bad = FindNonFinite(payload.data, range.size());
  if (bad == range.size()) return absl::OkStatus();
  const int64_t element = range.begin + bad;
  const int64_t variable = layout.VariableAt(element);
  float value;
  std::memcpy(&value, payload.data + bad * sizeof(float), sizeof(value));
  detail.set_kind(ps::ErrorDetail::NON_FINITE);
  detail.set_variable(layout.variables()[variable].name);
  detail.set_index(element - layout.offset(variable));
  return MakeError(detail, absl::StrFormat("the gradient of %s is %f at element %d",
                                           detail.variable(), value, detail.index()));
}

}  // namespace pushpull

#include "ps_server/core/chunk_verifier.h"

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/strings/str_format.h"

#include "common/wire/error_detail.h"
#include "common/wire/gradient_encoding.h"
#include "kernels/bfloat16.h"

namespace pushpull {
namespace {

// An exponent of all ones means NaN or infinity. A bfloat16 is the upper half of a float.
constexpr uint32_t kExponent = 0x7f800000;
constexpr uint16_t kHalfExponent = kExponent >> 16;

template <typename T>
float ValueAt(const char* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(value), sizeof(value));
  return ToFloat(value);
}

float ValueAt(const char* data, ps::GradientEncoding encoding, int64_t i) {
  return encoding == ps::FLOAT32 ? ValueAt<float>(data, i) : ValueAt<Bfloat16>(data, i);
}

__m256i NonFiniteLanes(__m256i values, ps::GradientEncoding encoding) {
  if (encoding == ps::FLOAT32) {
    const __m256i exponent = _mm256_set1_epi32(kExponent);
    return _mm256_cmpeq_epi32(_mm256_and_si256(values, exponent), exponent);
  }
  const __m256i exponent = _mm256_set1_epi16(kHalfExponent);
  return _mm256_cmpeq_epi16(_mm256_and_si256(values, exponent), exponent);
}

// Returns the index of the first non-finite element, or count if there is none.
int64_t FindNonFinite(const char* data, ps::GradientEncoding encoding, int64_t count) {
  constexpr int64_t kVectors = 4;  // tested together, with one branch
  const int64_t bytes_per_element = *BytesPerElement(encoding);
  const int64_t block = kVectors * static_cast<int64_t>(sizeof(__m256i)) / bytes_per_element;
  int64_t i = 0;
  for (; i + block <= count; i += block) {
    const auto* const vectors = reinterpret_cast<const __m256i*>(data + i * bytes_per_element);
    __m256i bad = _mm256_setzero_si256();
    for (int64_t j = 0; j < kVectors; ++j) {
      bad = _mm256_or_si256(bad, NonFiniteLanes(_mm256_loadu_si256(vectors + j), encoding));
    }
    if (!_mm256_testz_si256(bad, bad)) break;
  }
  while (i < count && std::isfinite(ValueAt(data, encoding, i))) ++i;
  return i;
}

}  // namespace

absl::Status VerifyChunk(const ps::PushChunk& header, const Payload& payload,
                         const VariableLayout& layout, const Sharding& sharding) {
  const uint32_t shard = header.shard();
  const uint32_t chunk = header.chunk();
  ps::ErrorDetail detail;
  if (shard >= static_cast<uint32_t>(sharding.tasks()) ||
      chunk >= static_cast<uint32_t>(sharding.num_chunks(shard))) {
    detail.set_kind(ps::ErrorDetail::BAD_CHUNK);
    return MakeError(detail, absl::StrFormat("there is no chunk %d of shard %d", chunk, shard));
  }
  const std::optional<int64_t> bytes_per_element = BytesPerElement(header.encoding());
  if (!bytes_per_element.has_value()) {
    detail.set_kind(ps::ErrorDetail::BAD_CHUNK);
    return MakeError(detail, absl::StrFormat("chunk %d of shard %d comes in encoding %d, which "
                                             "this server does not know",
                                             chunk, shard, static_cast<int>(header.encoding())));
  }
  const ElementRange range = sharding.chunk(shard, chunk);
  const int64_t expected_bytes = range.size() * *bytes_per_element;
  if (static_cast<int64_t>(payload.size_bytes) != expected_bytes) {
    detail.set_kind(ps::ErrorDetail::BAD_CHUNK);
    return MakeError(detail, absl::StrFormat("chunk %d of shard %d has %d bytes, expected %d as %s",
                                             chunk, shard, payload.size_bytes, expected_bytes,
                                             ps::GradientEncoding_Name(header.encoding())));
  }
  const uint32_t actual = Crc32cOf(payload);
  if (actual != header.crc32c()) {
    detail.set_kind(ps::ErrorDetail::BAD_CHECKSUM);
    return MakeError(detail, absl::StrFormat("chunk %d of shard %d arrived damaged: CRC32C is "
                                             "%08x, the sender computed %08x",
                                             chunk, shard, actual, header.crc32c()));
  }
  const int64_t bad = FindNonFinite(payload.data, header.encoding(), range.size());
  if (bad == range.size()) return absl::OkStatus();
  const int64_t element = range.begin + bad;
  const int64_t variable = layout.VariableAt(element);
  detail.set_kind(ps::ErrorDetail::NON_FINITE);
  detail.set_variable(layout.variables()[variable].name);
  detail.set_index(element - layout.offset(variable));
  return MakeError(detail,
                   absl::StrFormat("the gradient of %s is %f at element %d", detail.variable(),
                                   ValueAt(payload.data, header.encoding(), bad), detail.index()));
}

}  // namespace pushpull

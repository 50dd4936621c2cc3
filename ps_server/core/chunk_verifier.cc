#include "ps_server/core/chunk_verifier.h"

#include <cstdint>

#include "absl/strings/str_format.h"

#include "common/wire/error_detail.h"
#include "common/wire/gradient_codec.h"

namespace pushpull {

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
  const GradientCodec* const codec = FindGradientCodec(header.encoding());
  if (codec == nullptr) {
    detail.set_kind(ps::ErrorDetail::BAD_CHUNK);
    return MakeError(detail, absl::StrFormat("chunk %d of shard %d comes in encoding %d, which "
                                             "this server does not know",
                                             chunk, shard, static_cast<int>(header.encoding())));
  }
  const ElementRange range = sharding.chunk(shard, chunk);
  const int64_t expected_bytes = codec->EncodedBytes(range.size());
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
  const int64_t bad = codec->FindNonFinite(payload.data, range.size());
  if (bad == range.size()) return absl::OkStatus();
  float value = 0.0f;
  codec->Decode(payload.data, range.size(), bad, 1, &value);
  const int64_t element = range.begin + bad;
  const int64_t variable = layout.VariableAt(element);
  detail.set_kind(ps::ErrorDetail::NON_FINITE);
  detail.set_variable(layout.variables()[variable].name);
  detail.set_index(element - layout.offset(variable));
  return MakeError(detail, absl::StrFormat("the gradient of %s is %f at element %d",
                                           detail.variable(), value, detail.index()));
}

}  // namespace pushpull

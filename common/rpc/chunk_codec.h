// PushChunk and PullChunk on the wire, without a protobuf object around the tensor bytes.
//
//   serialised header | tag of field 15 (0x7a) | varint length | payload
//
// which are exactly the bytes that protobuf makes of the whole message (an empty payload has no
// field at all), so any gRPC client can talk to us. The encoder appends the payload as a slice; the
// decoder finds it inside the received slices. Free functions, thread-safe.
#ifndef PUSHPULL_COMMON_RPC_CHUNK_CODEC_H_
#define PUSHPULL_COMMON_RPC_CHUNK_CODEC_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/payload.h"

namespace pushpull {

// Largest header accepted: all fields of a chunk but the payload.
inline constexpr size_t kMaxChunkHeaderBytes = 64 * 1024;

// The payload field of `header` must be empty. The buffer shares payload.owner, or, where that is
// null, refers to the caller's memory.
grpc::ByteBuffer EncodeChunk(const google::protobuf::MessageLite& header, const Payload& payload);

// Fills `header` (payload stays empty) and `payload`. One slice, or several that touch in memory:
// the payload shares them (zero copy); otherwise it is gathered into one buffer, and its CRC32C is
// computed on the way. Takes the payload field wherever it stands and skips unknown fields as
// protobuf does. INVALID_ARGUMENT: no valid protobuf, a payload field more than once, or a header
// that is too large. Nothing is allocated from a length that the bytes present do not cover.
absl::Status DecodeChunk(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* header,
                         Payload* payload);

// Memory for a payload of size_bytes, or an error, which ends the decoding.
using ChunkPlaceFn = absl::FunctionRef<absl::StatusOr<char*>(size_t size_bytes)>;

// As DecodeChunk, but copies the payload to where `place` wants it and returns the CRC32C of what
// lies there. `place` is called once, with `header` filled and the bytes present.
absl::StatusOr<uint32_t> DecodeChunkInto(const grpc::ByteBuffer& buffer,
                                         google::protobuf::MessageLite* header, ChunkPlaceFn place);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_CHUNK_CODEC_H_

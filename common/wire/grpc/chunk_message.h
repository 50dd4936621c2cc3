// Serializes and parses PushChunk and PullChunk without copying the tensor bytes into a protobuf
// object:
//
//   serialised header | tag of field 15 (0x7a) | varint length | payload
//
// These are exactly the bytes that protobuf produces for the whole message (it omits an empty
// payload), so any gRPC client can talk to this server. The payload, whose encoding is that of a
// GradientCodec, is appended as a slice and found inside the received slices. All functions are
// thread-safe.
#ifndef PUSHPULL_COMMON_WIRE_GRPC_CHUNK_MESSAGE_H_
#define PUSHPULL_COMMON_WIRE_GRPC_CHUNK_MESSAGE_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/payload.h"

namespace pushpull {

// Largest header that is accepted. The header is all fields of a chunk except the payload.
inline constexpr size_t kMaxChunkHeaderBytes = 64 * 1024;

// Serializes a chunk. The payload field of `header` must be empty. The buffer refers to the
// payload's bytes and holds payload.owner. If the owner is null, the caller must keep the bytes
// valid until gRPC has released the buffer.
grpc::ByteBuffer SerializeChunk(const google::protobuf::MessageLite& header,
                                const Payload& payload);

// Parses a chunk into `header`, whose payload field stays empty, and `payload`. If the payload's
// bytes are contiguous in memory, in one slice or in adjacent ones, `payload` shares the slices
// without a copy. Otherwise it is gathered into one buffer, and its CRC32C is computed on the way.
// The payload field may stand anywhere in the message; unknown fields are skipped, as protobuf
// does. A length in the message never causes an allocation unless the buffer really has that many
// bytes. INVALID_ARGUMENT: not a valid protobuf, more than one payload field, or a header that is
// too large.
absl::Status ParseChunk(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* header,
                        Payload* payload);

// Returns memory for a payload of size_bytes, or an error, which ends the parsing.
using ChunkPlaceFn = absl::FunctionRef<absl::StatusOr<char*>(size_t size_bytes)>;

// Like ParseChunk, but copies the payload to the memory that `place` returns, and returns the
// CRC32C of the copied bytes (0 without a payload). `place` is called once, after `header` was
// filled and the payload was found to be complete. Errors of `place` are returned unchanged.
absl::StatusOr<uint32_t> ParseChunkInto(const grpc::ByteBuffer& buffer,
                                        google::protobuf::MessageLite* header, ChunkPlaceFn place);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_CHUNK_MESSAGE_H_
